# Each tests/test_<area>.c is one cmocka program and one test; each tests/test_<area>.sh is one test, run by bash.
#
# A word list in the first three lines, "labels: slow threads", becomes the labels; a test is quick unless it says slow.
# "serial" keeps others from running beside it. `ctest -L` selects by label.

if(NOT BUILD_TESTING)
    return()
endif()
pkg_check_modules(yoke_cmocka QUIET IMPORTED_TARGET cmocka)
if(NOT yoke_cmocka_FOUND)
    message(STATUS "cmocka is missing: tests are not built (tools/install-deps check)")
    return()
endif()

# More threads than cores, as some tests have, must not spin while they wait for each other.
set(test_environment
    "OMP_WAIT_POLICY=passive"
    "ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/cmake/tsan.supp:second_deadlock_stack=1"
    "YOKE_BINARY=${CMAKE_BINARY_DIR}/yoke"
    "YOKE_BUILD_DIR=${CMAKE_BINARY_DIR}"
    "YOKE_SOURCE_DIR=${CMAKE_SOURCE_DIR}")

# Labels, time limit and surroundings of test `name`, as the head of `source` asks.
function(yoke_test_properties name source)
    file(STRINGS ${source} head LIMIT_COUNT 3)
    set(labels "")
    if(head MATCHES "labels: ([a-z ]+)")
        string(STRIP "${CMAKE_MATCH_1}" labels)
        string(REPLACE " " ";" labels "${labels}")
    endif()
    set(timeout 900)
    if(NOT "slow" IN_LIST labels)
        list(PREPEND labels quick)
        list(REMOVE_DUPLICATES labels)
        set(timeout 300)
    endif()
    set_tests_properties(${name} PROPERTIES
        LABELS "${labels}" TIMEOUT ${timeout} ENVIRONMENT "${test_environment}"
        WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
    if("serial" IN_LIST labels)
        set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
endfunction()

file(GLOB test_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/test_*.c)
foreach(source IN LISTS test_sources)
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
    target_compile_definitions(${name} PRIVATE
        YOKE_BINARY="${CMAKE_BINARY_DIR}/yoke"
        YOKE_BUILD_DIR="${CMAKE_BINARY_DIR}"
        YOKE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    target_link_libraries(${name} PRIVATE yoke_lib ${yoke_dependencies} PkgConfig::yoke_cmocka)
    if(TARGET yoke)
        add_dependencies(${name} yoke)
    endif()
    add_test(NAME ${name} COMMAND ${name})
    yoke_test_properties(${name} ${source})
endforeach()

file(GLOB test_scripts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/test_*.sh)
foreach(source IN LISTS test_scripts)
    get_filename_component(name ${source} NAME_WE)
    add_test(NAME ${name} COMMAND bash ${source})
    yoke_test_properties(${name} ${source})
endforeach()
