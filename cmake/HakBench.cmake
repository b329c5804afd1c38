# The benchmarks: bench/NAME.c becomes the program bench/NAME. None is linked with hakmem, so that one
# binary measures every allocator that can be preloaded. A source with a header of its own name is not a
# program but a part that programs share. A workload is compiled twice: bench/latency.h says why.

file(GLOB bench_sources CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/bench/*.c" "${PROJECT_SOURCE_DIR}/bench/*.cc")

set(bench_parts)
foreach(source IN LISTS bench_sources)
    string(REGEX REPLACE "\\.cc?$" ".h" header "${source}")
    if(EXISTS "${header}")
        list(APPEND bench_parts "${source}")
    endif()
endforeach()
list(REMOVE_ITEM bench_sources ${bench_parts})

# Programs that measure other processes, or nothing.
set(bench_tools command_cost exit_pages first_calls peak_memory process_start start_loop)

function(hak_bench_options target)
    hak_compile(${target})
    # A compiler that knows malloc removes the very pairs that are to be measured.
    target_compile_options(${target} PRIVATE ${hak_unknown_malloc})
endfunction()

if(bench_parts)
    add_library(bench_parts STATIC ${bench_parts})
    hak_bench_options(bench_parts)
endif()

foreach(source IN LISTS bench_sources)
    get_filename_component(name "${source}" NAME_WE)
    if(source MATCHES "\\.cc$" AND NOT CMAKE_CXX_COMPILER)
        continue()
    endif()
    add_executable(bench_${name} "${source}")
    hak_bench_options(bench_${name})
    if(bench_parts)
        target_link_libraries(bench_${name} PRIVATE bench_parts)
    endif()
    if(NOT name IN_LIST bench_tools)
        add_library(bench_${name}_latency OBJECT "${source}")
        hak_bench_options(bench_${name}_latency)
        target_compile_definitions(bench_${name}_latency PRIVATE WORKLOAD_LATENCY_TWIN)
        target_sources(bench_${name} PRIVATE $<TARGET_OBJECTS:bench_${name}_latency>)
    endif()
    target_link_libraries(bench_${name} PRIVATE -pthread m)
    set_target_properties(bench_${name} PROPERTIES
        OUTPUT_NAME ${name}
        RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
endforeach()
