# The command yoke, the measurements of bench/, the examples, and the helpers of tools/.

file(GLOB cli_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cli/*.c ${CMAKE_SOURCE_DIR}/src/cli/*/*.c)
if(cli_sources)
    add_executable(yoke ${cli_sources})
    target_include_directories(yoke PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(yoke PRIVATE yoke_lib ${yoke_dependencies})
endif()

# Each source of `folder` becomes a program of its own. Names may repeat between folders, hence the prefix.
function(yoke_programs folder)
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.c)
    foreach(source IN LISTS sources)
        get_filename_component(name ${source} NAME_WE)
        add_executable(${folder}_${name} ${source})
        set_target_properties(${folder}_${name} PROPERTIES
            OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${folder})
        target_link_libraries(${folder}_${name} PRIVATE yoke_lib ${ARGN})
    endforeach()
endfunction()

yoke_programs(bench ${yoke_dependencies})
file(GLOB bench_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/*.c)
foreach(source IN LISTS bench_sources)
    get_filename_component(name ${source} NAME_WE)
    target_include_directories(bench_${name} PRIVATE ${CMAKE_SOURCE_DIR}/src)
endforeach()

# A peer that bench/allreduce runs in turn with yoke, if MPI is there (tools/install-deps bench).
find_package(MPI QUIET COMPONENTS C)
if(MPI_C_FOUND)
    add_executable(bench_allreduce_mpi bench/peers/allreduce_mpi.c)
    set_target_properties(bench_allreduce_mpi PROPERTIES
        OUTPUT_NAME allreduce_mpi RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench/peers)
    target_link_libraries(bench_allreduce_mpi PRIVATE MPI::MPI_C)
endif()

# Examples see what a user sees: the public headers and no dependency.
yoke_programs(examples)
yoke_programs(tools PkgConfig::yoke_zlib)
