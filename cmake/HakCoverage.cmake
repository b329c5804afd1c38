# The build that counts. Every program that holds the objects adds its counts to the same files when it ends, and
# tests/coverage/flush.c sees to those that end without saying goodbye.

if(NOT CMAKE_C_COMPILER_ID STREQUAL "GNU")
    message(FATAL_ERROR "HAK_COVERAGE needs gcc: the counts are kept in its format")
endif()

set(hak_flush "${PROJECT_SOURCE_DIR}/tests/coverage/flush.c")
target_compile_options(hakmem_objects PRIVATE
    -O0                      # each branch of the source is one of the code
    -Dalways_inline=unused   # what a header defines is counted there, not where it is called
    --coverage
    -fprofile-update=atomic)
target_sources(hakmem_objects PRIVATE "${hak_flush}")
set_source_files_properties("${hak_flush}" PROPERTIES COMPILE_OPTIONS "-fno-profile-arcs;-fno-test-coverage")
target_link_options(hakmem_objects INTERFACE --coverage)
target_link_options(hakmem PRIVATE --coverage)
target_link_options(hakmem_static INTERFACE --coverage)

# Not optimised, the frames that operator new throws through name a routine of the compiler's, which hakmem.o, where
# nothing hidden can be seen from outside, would take away from the libc of a static program.
set_property(SOURCE "${PROJECT_SOURCE_DIR}/src/api/cxx.c" APPEND PROPERTY COMPILE_OPTIONS -O1)
