# cmake --install: headers, library, command, and a pkg-config file and a CMake package that name what it stands on.

include(CMakePackageConfigHelpers)

install(DIRECTORY include/yoke DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS yoke_lib EXPORT yokeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET yoke)
    install(TARGETS yoke RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/yoke)
install(EXPORT yokeTargets NAMESPACE yoke:: DESTINATION ${package_dir})
configure_package_config_file(cmake/yokeConfig.cmake.in ${CMAKE_BINARY_DIR}/yokeConfig.cmake
    INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/yokeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/yokeConfig.cmake ${CMAKE_BINARY_DIR}/yokeConfigVersion.cmake
    cmake/yokeDependencies.cmake DESTINATION ${package_dir})

# The archive does not link without these libraries, so the file names them whether or not --static is said; by flag and
# not under Requires, because --static would then ask for what they themselves were built from.
set(yoke_pc_libraries ${yoke_jansson_LDFLAGS} ${yoke_yaml_LDFLAGS} ${yoke_zlib_LDFLAGS}
    ${yoke_xxhash_LDFLAGS} ${yoke_hwloc_LDFLAGS})
if(YOKE_DNNL_LIBRARY)
    get_filename_component(dnnl_dir ${YOKE_DNNL_LIBRARY} DIRECTORY)
    list(APPEND yoke_pc_libraries -L${dnnl_dir})
endif()
list(APPEND yoke_pc_libraries -ldnnl)
# gcc finds its own OpenMP by name, in a folder that moves with its version; clang's is named by its path.
if(YOKE_OPENMP)
    foreach(name IN LISTS OpenMP_C_LIB_NAMES)
        if(name STREQUAL "gomp")
            list(APPEND yoke_pc_libraries -lgomp)
        elseif(NOT name STREQUAL "pthread")
            list(APPEND yoke_pc_libraries ${OpenMP_${name}_LIBRARY})
        endif()
    endforeach()
endif()
list(APPEND yoke_pc_libraries -lpthread -lm)
list(REMOVE_DUPLICATES yoke_pc_libraries)
list(JOIN yoke_pc_libraries " " yoke_pc_libraries)
file(RELATIVE_PATH yoke_pc_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" yoke_pc_prefix "${yoke_pc_prefix}")
configure_file(cmake/yoke.pc.in ${CMAKE_BINARY_DIR}/yoke.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/yoke.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
