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

# Programs without a latency twin: they measure other processes, or nothing, or are counted and not timed.
set(bench_tools command_cost entry_calls exit_pages first_calls peak_memory process_start start_loop)

function(hak_bench_options target)
    hak_compile(${target})
    # A compiler that knows malloc removes the very pairs that are to be measured.
    target_compile_options(${target} PRIVATE ${hak_unknown_malloc})
endfunction()

if(bench_parts)
    add_library(bench_parts STATIC ${bench_parts})
    hak_bench_options(bench_parts)
    target_link_libraries(bench_parts INTERFACE m)
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

# ---- above and below every allocator -------------------------------------------------------------------
#
# bench/ceiling/: hakmem's front without its checks, to be preloaded like any allocator, and the allocator that counts for it
# beforehand. Compiled as the library is.

function(hak_bare_allocator name)
    set(target bench_bare_${name})
    list(TRANSFORM ARGN PREPEND "${PROJECT_SOURCE_DIR}/bench/ceiling/" OUTPUT_VARIABLE sources)
    add_library(${target} SHARED ${sources} "${PROJECT_SOURCE_DIR}/bench/ceiling/common.c"
        "${PROJECT_SOURCE_DIR}/bench/ceiling/entries.c" "${PROJECT_SOURCE_DIR}/src/heap/front.c")
    hak_bench_options(${target})
    target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/bench/ceiling")
    target_compile_definitions(${target} PRIVATE "CEILING_BLOCKS=\"${name}.h\"")
    target_compile_options(${target} PRIVATE -ftls-model=initial-exec -fno-semantic-interposition -fno-plt)
    target_link_options(${target} PRIVATE -Wl,-z,nodelete -Wl,-z,now -Wl,-z,relro)
    target_link_libraries(${target} PRIVATE -pthread ${CMAKE_DL_LIBS})
    set_target_properties(${target} PROPERTIES
        OUTPUT_NAME ${name}
        LINKER_LANGUAGE C
        C_VISIBILITY_PRESET hidden
        LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
endfunction()

# They replace malloc, which sanitizers and emulators do not tolerate.
if(NOT HAK_SANITIZE AND NOT HAK_NO_LIBC_NAMES AND NOT CMAKE_CROSSCOMPILING)
    hak_bare_allocator(ceiling prepare.c)
    hak_bare_allocator(null prepare.c)
    hak_bare_allocator(counting counting.c)

    # For what is counted, not timed: ./hakmem baseline.
    add_library(bench_steady SHARED "${PROJECT_SOURCE_DIR}/bench/steady/steady.c")
    hak_bench_options(bench_steady)
    set_target_properties(bench_steady PROPERTIES
        OUTPUT_NAME steady
        C_VISIBILITY_PRESET hidden
        LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
endif()

# ---- which lines move between processors ---------------------------------------------------------------

if(HAK_SHARING)
    add_subdirectory("${PROJECT_SOURCE_DIR}/bench/sharing" "${PROJECT_BINARY_DIR}/bench/sharing-build")
endif()

# ---- workloads that are linked with the library --------------------------------------------------------
#
# bench/linked/FORM/NAME, for ./hakmem builds. Each FORM is linked in another way; without the twin that measures latencies.

set(linked_workloads tiny_hot fixed_size random_mixed lifo_burst producer_consumer larson mid_large_mt)
set(linked_folder "${PROJECT_BINARY_DIR}/bench/linked")
add_custom_target(bench_linked)

# hak_linked(FORM SOURCE...): one program for each workload, with further sources; linked_FORM_NAME.
function(hak_linked form)
    foreach(name IN LISTS linked_workloads)
        set(target linked_${form}_${name})
        add_executable(${target} EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/bench/${name}.c" ${ARGN})
        hak_bench_options(${target})
        target_link_libraries(${target} PRIVATE -pthread m)
        set_target_properties(${target} PROPERTIES
            OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${linked_folder}/${form}")
        add_dependencies(bench_linked ${target})
    endforeach()
endfunction()

if(NOT HAK_SANITIZE AND NOT HAK_NO_LIBC_NAMES AND NOT CMAKE_CROSSCOMPILING)
    # With the shared object beside it, called without a jump in between (-fno-plt) and bound at start.
    hak_linked(dynamic)
    add_custom_target(linked_dynamic_library DEPENDS hakmem
        COMMAND ${CMAKE_COMMAND} -E make_directory "${linked_folder}/dynamic"
        COMMAND ${CMAKE_COMMAND} -E copy_if_different
            $<TARGET_FILE:hakmem> "${linked_folder}/dynamic/$<TARGET_SONAME_FILE_NAME:hakmem>" VERBATIM)
    add_dependencies(bench_linked linked_dynamic_library)
    foreach(name IN LISTS linked_workloads)
        target_compile_options(linked_dynamic_${name} PRIVATE -fno-plt)
        target_link_libraries(linked_dynamic_${name} PRIVATE bench_parts hakmem)
        target_link_options(linked_dynamic_${name} PRIVATE -Wl,-z,now)
        set_target_properties(linked_dynamic_${name} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
    endforeach()

    # With the archive.
    hak_linked(static)
    foreach(name IN LISTS linked_workloads)
        target_link_libraries(linked_static_${name} PRIVATE bench_parts hakmem_static)
    endforeach()

    # Program and library optimised as one.
    add_library(linked_lto_library OBJECT EXCLUDE_FROM_ALL ${hak_sources})
    hak_compile(linked_lto_library)
    set_target_properties(linked_lto_library PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
    target_include_directories(linked_lto_library PUBLIC "${PROJECT_SOURCE_DIR}/src")
    target_link_libraries(linked_lto_library PUBLIC hakmem_headers)
    target_compile_options(linked_lto_library PRIVATE -flto -ftls-model=initial-exec -fno-semantic-interposition)
    hak_linked(lto ${bench_parts})
    foreach(name IN LISTS linked_workloads)
        target_compile_options(linked_lto_${name} PRIVATE -flto)
        target_link_options(linked_lto_${name} PRIVATE -flto=auto)
        target_link_libraries(linked_lto_${name} PRIVATE linked_lto_library)
    endforeach()

    # The fast paths in the caller (bench/inlined/). They need hidden symbols, so the objects themselves are linked.
    hak_linked(inlined)
    foreach(name IN LISTS linked_workloads)
        target_compile_options(linked_inlined_${name} PRIVATE
            "SHELL:-include ${PROJECT_SOURCE_DIR}/bench/inlined/inlined.h")
        target_link_libraries(linked_inlined_${name} PRIVATE bench_parts hakmem_objects)
    endforeach()
endif()
