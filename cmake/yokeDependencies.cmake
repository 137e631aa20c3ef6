# What the library stands on. Read by yoke's own build and, installed beside yokeConfig.cmake, by those who link the
# static library, so that both name the same targets. Sets yoke_dependencies.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(yoke_jansson REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(yoke_yaml REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(yoke_zlib REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(yoke_xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(yoke_hwloc REQUIRED IMPORTED_TARGET hwloc)

# By name first: Debian's CMake package of oneDNN also demands OpenCL, which yoke does not use.
find_library(YOKE_DNNL_LIBRARY dnnl)
find_path(YOKE_DNNL_INCLUDE_DIR dnnl.h)
mark_as_advanced(YOKE_DNNL_LIBRARY YOKE_DNNL_INCLUDE_DIR)
if(YOKE_DNNL_LIBRARY AND YOKE_DNNL_INCLUDE_DIR AND NOT TARGET DNNL::dnnl)
    add_library(DNNL::dnnl UNKNOWN IMPORTED)
    set_target_properties(DNNL::dnnl PROPERTIES
        IMPORTED_LOCATION "${YOKE_DNNL_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${YOKE_DNNL_INCLUDE_DIR}")
elseif(NOT TARGET DNNL::dnnl)
    find_package(dnnl REQUIRED CONFIG)
endif()

set(yoke_dependencies PkgConfig::yoke_jansson PkgConfig::yoke_yaml PkgConfig::yoke_zlib
    PkgConfig::yoke_xxhash PkgConfig::yoke_hwloc DNNL::dnnl Threads::Threads m)
if(YOKE_OPENMP)
    find_package(OpenMP REQUIRED COMPONENTS C)
    list(APPEND yoke_dependencies OpenMP::OpenMP_C)
endif()
