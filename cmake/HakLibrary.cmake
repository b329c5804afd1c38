# The library in its shapes, all from the same objects:
#
#   hakmem_objects   the layers, compiled once; tests link these, since they need hidden symbols
#   hakmem           libhakmem.so, for LD_PRELOAD and for linking
#   hakmem_object    hakmem.o, one object in which every hidden name has become local
#   hakmem_static    libhakmem.a, whose only member is hakmem.o
#   hakmem_headers   the include directory alone
#
# From an archive of many members the linker would take some: a program could end with hakmem's malloc and
# libc's free, or with a private name of ours where it expects its own. One member is linked whole or not
# at all, and with `-u malloc` it is linked even if nothing else needs it.

# One folder per layer (src/README.md), in the order in which their objects are linked.
set(hak_layers base os region span slab heap ace watch api)

set(hak_sources)
foreach(layer IN LISTS hak_layers)
    file(GLOB layer_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${layer}/*.c")
    list(APPEND hak_sources ${layer_sources})
endforeach()

# ---- headers ----------------------------------------------------------------------------------------

add_library(hakmem_headers INTERFACE)
target_include_directories(hakmem_headers INTERFACE
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")

# ---- objects ----------------------------------------------------------------------------------------

add_library(hakmem_objects OBJECT ${hak_sources})
hak_compile(hakmem_objects)
set_target_properties(hakmem_objects PROPERTIES
    POSITION_INDEPENDENT_CODE ON
    C_VISIBILITY_PRESET hidden)
target_include_directories(hakmem_objects PUBLIC "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(hakmem_objects PUBLIC hakmem_headers)
target_compile_options(hakmem_objects PRIVATE
    -ftls-model=initial-exec     # one instruction to the heap; PT_TLS is kept small enough for dlopen
    -fno-semantic-interposition  # calls inside the library are direct
    -fno-plt
    -fdata-sections) # for cmake/rare.ld

# Code that is compiled against the objects must see the same switches.
if(HAK_CHECKED)
    target_compile_definitions(hakmem_objects PUBLIC HAK_CHECKED=1)
endif()
if(HAK_NO_LIBC_NAMES)
    target_compile_definitions(hakmem_objects PUBLIC HAK_NO_LIBC_NAMES=1)
endif()

# Otherwise malloc and memset would become calloc, which would then call itself.
foreach(source IN LISTS hak_sources)
    if(source MATCHES "/src/api/")
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${hak_unknown_malloc})
    endif()
    # Operator new throws through these frames; no C header declares C++'s operators.
    if(source MATCHES "/src/api/cxx\\.c$")
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS
            -fexceptions -Wno-missing-prototypes)
    endif()
    # glibc's header is not included either: other C libraries lack its structures.
    if(source MATCHES "/src/api/glibc\\.c$")
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -Wno-missing-prototypes)
    endif()
endforeach()

# ---- shared object ----------------------------------------------------------------------------------

# hak_below(VARIABLE PREFIX FOLDER): the path of an installed folder, which may be absolute.
function(hak_below variable prefix folder)
    if(NOT IS_ABSOLUTE "${folder}")
        string(PREPEND folder "${prefix}/")
    endif()
    set(${variable} "${folder}" PARENT_SCOPE)
endfunction()

# What may break programs has another name: before 1.0 that is every minor version, for the loader as for find_package
# (HakInstall.cmake).
set(hak_interface ${PROJECT_VERSION_MAJOR})
set(hak_compatible SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(hak_interface ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    set(hak_compatible SameMinorVersion)
endif()

add_library(hakmem SHARED $<TARGET_OBJECTS:hakmem_objects>)
hak_compile(hakmem)
set_target_properties(hakmem PROPERTIES
    LINKER_LANGUAGE C
    VERSION ${PROJECT_VERSION}
    SOVERSION ${hak_interface})
target_link_options(hakmem PRIVATE
    -Wl,-z,nodelete  # threads and exit handlers point into it
    -Wl,-z,initfirst # its fork handlers are prepared last: other libraries register theirs later
    -Wl,-z,now -Wl,-z,relro
    -Wl,-z,noseparate-code) # headers, code and constants in one mapping: decision 0037
# Only if the linker can do it (gold and mold have no INSERT), and not with link-time optimisation, which joins the objects that the
# script names.
set(hak_rare "${PROJECT_SOURCE_DIR}/cmake/rare.ld")
include(CheckLinkerFlag)
check_linker_flag(C "-Wl,-T,${hak_rare}" HAK_RARE_APART)
if(HAK_RARE_APART AND NOT HAK_PGO)
    target_link_options(hakmem PRIVATE "-Wl,-T,${hak_rare}")
    set_target_properties(hakmem PROPERTIES LINK_DEPENDS "${hak_rare}")
endif()
if(NOT HAK_SANITIZE) # clang leaves a sanitizer's own names to the program
    target_link_options(hakmem PRIVATE -Wl,--no-undefined)
endif()
# Compilers that link with --as-needed drop a library that the program's own code does not name, yet
# libc's blocks must be hakmem's too. One word, so that nothing gets between the switches.
set(hak_keep "-Wl,--push-state,--no-as-needed")
hak_below(hak_library_folder "$<INSTALL_PREFIX>" "${CMAKE_INSTALL_LIBDIR}")
target_link_libraries(hakmem PRIVATE -pthread INTERFACE hakmem_headers
    "$<BUILD_INTERFACE:${hak_keep},${PROJECT_BINARY_DIR}/libhakmem.so,--pop-state>"
    "$<INSTALL_INTERFACE:${hak_keep},${hak_library_folder}/libhakmem.so,--pop-state>")

# ---- the wrapper of dlopen ---------------------------------------------------------------------------

# libhakmem-no-deepbind.so, which ./hakmem run --no-deepbind preloads beside the library.
add_library(hakmem_no_deepbind SHARED "${PROJECT_SOURCE_DIR}/tools/no_deepbind.c")
hak_compile(hakmem_no_deepbind)
set_target_properties(hakmem_no_deepbind PROPERTIES
    OUTPUT_NAME hakmem-no-deepbind
    C_VISIBILITY_PRESET hidden)
target_compile_options(hakmem_no_deepbind PRIVATE -O2) # its last calls must be jumps, in every kind of build
target_link_libraries(hakmem_no_deepbind PRIVATE ${CMAKE_DL_LIBS})
target_link_options(hakmem_no_deepbind PRIVATE -Wl,-z,nodelete -Wl,-z,now -Wl,-z,relro)

# ---- one object, and the archive that holds it ------------------------------------------------------

set(hak_object "${PROJECT_BINARY_DIR}/hakmem.o")
set(hak_join ${CMAKE_C_COMPILER} -r -nostdlib)
if(HAK_PGO) # link-time optimisation happens here, or the object would hold no code
    separate_arguments(optimise UNIX_COMMAND "${CMAKE_C_FLAGS_RELEASE}")
    list(APPEND hak_join ${optimise} -flto=auto -flinker-output=nolto-rel)
endif()
add_custom_command(
    OUTPUT "${hak_object}"
    COMMAND ${hak_join} -o "${hak_object}" $<TARGET_OBJECTS:hakmem_objects>
    # A program that is linked with this has the nothrow forms of its C++ library: api/cxx.c.
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden --wildcard "--localize-symbol=_Zn*RKSt9nothrow_t" "${hak_object}"
    DEPENDS hakmem_objects $<TARGET_OBJECTS:hakmem_objects>
    COMMAND_EXPAND_LISTS VERBATIM
    COMMENT "Joining hakmem.o")
add_custom_target(hakmem_object_file ALL DEPENDS "${hak_object}")

add_library(hakmem_object OBJECT IMPORTED GLOBAL)
set_target_properties(hakmem_object PROPERTIES IMPORTED_OBJECTS "${hak_object}")
target_link_libraries(hakmem_object INTERFACE hakmem_headers -pthread)
add_dependencies(hakmem_object hakmem_object_file)

set_source_files_properties("${hak_object}" PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
add_library(hakmem_static STATIC "${hak_object}")
add_dependencies(hakmem_static hakmem_object_file)
set_target_properties(hakmem_static PROPERTIES OUTPUT_NAME hakmem LINKER_LANGUAGE C)
target_link_options(hakmem_static INTERFACE -Wl,-u,malloc)
target_link_libraries(hakmem_static INTERFACE hakmem_headers -pthread)

foreach(shape IN ITEMS static object headers)
    add_library(hakmem::${shape} ALIAS hakmem_${shape})
endforeach()
add_library(hakmem::shared ALIAS hakmem)

if(HAK_PGO)
    include("${CMAKE_CURRENT_LIST_DIR}/HakPgo.cmake")
endif()
if(HAK_COVERAGE)
    include("${CMAKE_CURRENT_LIST_DIR}/HakCoverage.cmake")
endif()
