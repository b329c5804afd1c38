# The benchmarks: bench/NAME.c becomes the program bench/NAME. None is linked with hakmem, so that one
# binary measures every allocator that can be preloaded.

file(GLOB bench_sources CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/bench/*.c" "${PROJECT_SOURCE_DIR}/bench/*.cc")

foreach(source IN LISTS bench_sources)
    get_filename_component(name "${source}" NAME_WE)
    if(source MATCHES "\\.cc$" AND NOT CMAKE_CXX_COMPILER)
        continue()
    endif()
    add_executable(bench_${name} "${source}")
    hak_compile(bench_${name})
    # A compiler that knows malloc removes the very pairs that are to be measured.
    target_compile_options(bench_${name} PRIVATE -fno-builtin)
    target_link_libraries(bench_${name} PRIVATE -pthread m)
    set_target_properties(bench_${name} PROPERTIES
        OUTPUT_NAME ${name}
        RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
endforeach()
