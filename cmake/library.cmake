# libyoke.a: all of src/ but the command line. The vector kernels are compiled once for each instruction set; which one
# runs is decided when the program starts. Kernels with operands that may be bf16 are compiled once more for those.

file(GLOB library_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*/*.c ${CMAKE_SOURCE_DIR}/src/*/*/*.c)
list(FILTER library_sources EXCLUDE REGEX "/src/cli/|/src/kernel/vector/")
file(GLOB vector_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernel/vector/*.c)

# Sources whose operands may be bf16, which are compiled once more for them (src/kernel/real.h).
set(is_narrow "/(attention[a-z_]*|cast|columns|convert|dispatch|dropout|elementwise|embedding|jitter|loss|norm|rope|router)\\.c$")
set(ref_narrow_sources ${library_sources})
list(FILTER ref_narrow_sources INCLUDE REGEX "/src/kernel/ref/")
list(FILTER ref_narrow_sources INCLUDE REGEX ${is_narrow})
set(vector_narrow_sources ${vector_sources})
list(FILTER vector_narrow_sources INCLUDE REGEX ${is_narrow})

set(kernel_sources ${library_sources})
list(FILTER kernel_sources INCLUDE REGEX "/src/kernel/")
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug" AND NOT YOKE_SANITIZE)
    set_source_files_properties(${kernel_sources} ${vector_sources} PROPERTIES COMPILE_OPTIONS -O3)
endif()

add_library(yoke_lib STATIC ${library_sources})
set_target_properties(yoke_lib PROPERTIES OUTPUT_NAME yoke EXPORT_NAME yoke)
target_include_directories(yoke_lib
    PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(yoke_lib PRIVATE ${yoke_dependencies})

add_library(yoke_ref_narrow OBJECT ${ref_narrow_sources})
target_include_directories(yoke_ref_narrow PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(yoke_ref_narrow PRIVATE YOKE_NARROW)
target_link_libraries(yoke_ref_narrow PRIVATE ${yoke_dependencies})
target_sources(yoke_lib PRIVATE $<TARGET_OBJECTS:yoke_ref_narrow>)

# One set of objects of src/kernel/vector/, with the flags that follow; `sources` is the name of a list.
function(yoke_vector_objects name isa sources)
    add_library(yoke_vector_${name} OBJECT ${${sources}})
    target_include_directories(yoke_vector_${name} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
    target_compile_definitions(yoke_vector_${name} PRIVATE YOKE_ISA=${isa})
    target_compile_options(yoke_vector_${name} PRIVATE ${ARGN})
    target_link_libraries(yoke_vector_${name} PRIVATE ${yoke_dependencies})
    target_sources(yoke_lib PRIVATE $<TARGET_OBJECTS:yoke_vector_${name}>)
endfunction()

function(yoke_vector_set isa)
    yoke_vector_objects(${isa} ${isa} vector_sources ${ARGN})
    yoke_vector_objects(${isa}_narrow ${isa} vector_narrow_sources ${ARGN} -DYOKE_NARROW)
endfunction()

if(vector_sources AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
    yoke_vector_set(avx2 -mavx2 -mfma)
    yoke_vector_set(avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mprefer-vector-width=512)
endif()
