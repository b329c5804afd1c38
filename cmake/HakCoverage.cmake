# The build that counts. Every program that contains the objects adds its counts to the same files when it exits;
# tests/coverage/flush.c writes them for processes that end by _exit or abort.

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

# Without optimisation the frames that operator new throws through refer to a routine of the compiler's. Since hakmem.o makes
# every hidden symbol local, it would take that routine away from the libc of a static program.
set_property(SOURCE "${PROJECT_SOURCE_DIR}/src/api/cxx.c" APPEND PROPERTY COMPILE_OPTIONS -O1)
