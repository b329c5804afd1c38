# What `cmake --install` installs: the headers, the manual page, the library in three shapes, the wrapper of dlopen, and the files
# by which CMake and pkg-config find them. Nothing in the installed files names a directory of the build.

install(FILES "${PROJECT_SOURCE_DIR}/include/hakmem/hakmem.h" "${PROJECT_SOURCE_DIR}/include/hakmem/stats_page.h"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/hakmem")
install(FILES "${PROJECT_SOURCE_DIR}/docs/man/hakmem.3" DESTINATION "${CMAKE_INSTALL_MANDIR}/man3")

foreach(shape IN ITEMS static headers)
    set_target_properties(hakmem_${shape} PROPERTIES EXPORT_NAME ${shape})
endforeach()
set_target_properties(hakmem PROPERTIES EXPORT_NAME shared)

install(TARGETS hakmem hakmem_static hakmem_headers EXPORT hakmemTargets
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(TARGETS hakmem_no_deepbind LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(FILES "${hak_object}" DESTINATION "${CMAKE_INSTALL_LIBDIR}")

set(hak_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/hakmem")
install(EXPORT hakmemTargets NAMESPACE hakmem:: DESTINATION "${hak_package_dir}")

include(CMakePackageConfigHelpers)
set(HAK_OBJECT_PATH "${CMAKE_INSTALL_LIBDIR}/hakmem.o")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/hakmemConfig.cmake.in"
    "${PROJECT_BINARY_DIR}/cmake/hakmemConfig.cmake"
    INSTALL_DESTINATION "${hak_package_dir}"
    PATH_VARS HAK_OBJECT_PATH)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/cmake/hakmemConfigVersion.cmake"
    COMPATIBILITY ${hak_compatible})
install(FILES
    "${PROJECT_BINARY_DIR}/cmake/hakmemConfig.cmake"
    "${PROJECT_BINARY_DIR}/cmake/hakmemConfigVersion.cmake"
    DESTINATION "${hak_package_dir}")

# pkg-config finds its own way from where the file lies, so the tree may be moved; not one that is to lie in a given place.
set(HAK_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
    file(RELATIVE_PATH hak_prefix_from_pc "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
    set(HAK_PC_PREFIX "\${pcfiledir}/${hak_prefix_from_pc}")
endif()
hak_below(HAK_PC_LIBDIR "\${prefix}" "${CMAKE_INSTALL_LIBDIR}")
hak_below(HAK_PC_INCLUDEDIR "\${prefix}" "${CMAKE_INSTALL_INCLUDEDIR}")
configure_file("${PROJECT_SOURCE_DIR}/cmake/hakmem.pc.in" "${PROJECT_BINARY_DIR}/cmake/hakmem.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/cmake/hakmem.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
