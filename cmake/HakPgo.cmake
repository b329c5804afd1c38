# The profile-guided build. The library is built twice from the same tree: in train/ with counters,
# for a run of cmake/pgo/train.c, and here with what they counted. gcc names a profile after the path
# of the object file; both builds cut their own directory off it, so the names agree.

if(NOT CMAKE_C_COMPILER_ID STREQUAL "GNU")
    message(FATAL_ERROR "HAK_PGO needs gcc: the profile is kept in its format")
endif()

set(hak_profile "${PROJECT_BINARY_DIR}/profile")

if(HAK_PGO STREQUAL "train")
    target_compile_options(hakmem_objects PRIVATE
        -fprofile-generate=${HAK_PROFILE} -fprofile-update=atomic
        -fprofile-prefix-path=${PROJECT_BINARY_DIR})
    target_link_options(hakmem PRIVATE -fprofile-generate)
    add_executable(hakmem_train cmake/pgo/train.c)
    hak_compile(hakmem_train)
    target_compile_options(hakmem_train PRIVATE ${hak_unknown_malloc})
    target_link_libraries(hakmem_train PRIVATE -pthread)
    add_custom_target(hakmem_profile
        COMMAND ${CMAKE_COMMAND} -E rm -rf "${HAK_PROFILE}"
        COMMAND ${CMAKE_COMMAND} -E env "LD_PRELOAD=$<TARGET_FILE:hakmem>" $<TARGET_FILE:hakmem_train>
        VERBATIM)
    add_dependencies(hakmem_profile hakmem hakmem_train)
    return()
endif()

file(GLOB_RECURSE hak_all_sources CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/src/*.[ch]" "${PROJECT_SOURCE_DIR}/include/*.h")
set(hak_trained "${PROJECT_BINARY_DIR}/profile.stamp")
add_custom_command(
    OUTPUT "${hak_trained}"
    COMMAND ${CMAKE_COMMAND} -S "${PROJECT_SOURCE_DIR}" -B "${PROJECT_BINARY_DIR}/train"
        -G "${CMAKE_GENERATOR}" -D CMAKE_MAKE_PROGRAM=${CMAKE_MAKE_PROGRAM}
        -D CMAKE_C_COMPILER=${CMAKE_C_COMPILER} -D CMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE}
        -D HAK_PGO=train -D HAK_PROFILE=${hak_profile}
        -D HAK_TESTS=OFF -D HAK_BENCH=OFF -D HAK_TOOLS=OFF
    COMMAND ${CMAKE_COMMAND} --build "${PROJECT_BINARY_DIR}/train" --target hakmem_profile
    COMMAND ${CMAKE_COMMAND} -E touch "${hak_trained}"
    DEPENDS ${hak_all_sources} "${PROJECT_SOURCE_DIR}/cmake/pgo/train.c"
    VERBATIM
    COMMENT "Training")
add_custom_target(hakmem_trained DEPENDS "${hak_trained}")
add_dependencies(hakmem_objects hakmem_trained)
set_property(SOURCE ${hak_sources} APPEND PROPERTY OBJECT_DEPENDS "${hak_trained}")

target_compile_options(hakmem_objects PRIVATE
    -flto=auto -fprofile-use=${hak_profile} -fprofile-prefix-path=${PROJECT_BINARY_DIR}
    -fprofile-correction        # counters of several threads do not always add up
    -fprofile-partial-training  # what the training never reached is optimised as without it
    -Wno-missing-profile)
# What these call by name may be the program's own; link-time optimisation would bind it to ours.
set_property(SOURCE "${PROJECT_SOURCE_DIR}/src/api/cxx.c" "${PROJECT_SOURCE_DIR}/src/api/glibc.c" APPEND PROPERTY COMPILE_OPTIONS -fno-lto)
target_link_options(hakmem_objects INTERFACE -flto=auto)
target_link_options(hakmem PRIVATE -flto=auto)
