# Flags that hold for every object: the language, the rounding, the warnings, the sanitizers.

add_compile_definitions(_POSIX_C_SOURCE=200809L)
if(YOKE_OPENMP)
    add_compile_definitions(YOKE_OPENMP=1)
else()
    add_compile_definitions(YOKE_OPENMP=0)
    add_compile_options(-Wno-unknown-pragmas)
endif()

# With products and sums never fused, both compilers give equal bits at every optimisation level.
add_compile_options(-ffp-contract=off)

add_compile_options(
    -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef
    -Wcast-qual -Wwrite-strings -Wdouble-promotion -Wformat=2 -Wswitch-enum -Wconversion)
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
    add_compile_options(-Wmissing-variable-declarations)
endif()
# gcc warns of what it itself put in when it instruments, so there warnings are only shown.
if(YOKE_WERROR AND NOT YOKE_SANITIZE)
    add_compile_options(-Werror)
endif()

if(YOKE_SANITIZE)
    add_compile_options(-fsanitize=${YOKE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${YOKE_SANITIZE})
endif()
