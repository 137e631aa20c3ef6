#!/usr/bin/env bash
# labels: slow
# The user's own model, built against an installed copy alone, with pkg-config and with the CMake package, trains on eight
# ranks and equals one; what is refused, is refused as by yoke. The copy has the command, and can be moved.
set -euo pipefail

source=${YOKE_SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
build=${YOKE_BUILD_DIR:?the build folder to install from}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "test_install: $*" >&2
    exit 1
}

# Runs a command that must end with a code; its output goes to $work/out.
expect() {
    local wanted=$1 code=0
    shift
    "$@" >"$work/out" 2>&1 || code=$?
    [[ $code == "$wanted" ]] || fail "exit code $code, not $wanted, of: $* -- $(cat "$work/out")"
}

says() {
    grep -q -- "$1" "$work/out" || fail "'$1' is not in: $(cat "$work/out")"
}

# What the library was built with (a sanitizer, say) is needed to link it, too.
cached() {
    sed -n "s/^$1:[^=]*=//p" "$build/CMakeCache.txt"
}
compiler=$(cached CMAKE_C_COMPILER)
sanitize=$(cached YOKE_SANITIZE)
flags=(-O2)
[[ -z $sanitize ]] || flags+=("-fsanitize=$sanitize")

# Installed in one place, then moved: no file may know where it was.
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/copy"
grep -rl "$work/first\|$source" "$work/copy" --include='*.pc' --include='*.cmake' && fail "a file knows its place"
expect 0 "$work/copy/bin/yoke" --help
says train

# The public headers and the example see nothing of the source tree.
mkdir "$work/own"
cp "$source/examples/own_model.c" "$work/own"
(($(wc -l <"$work/own/own_model.c") < 100)) || fail "own_model.c has 100 lines or more"

pc=$(dirname "$(find "$work/copy" -name yoke.pc)")
read -ra pc_flags <<<"$(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs yoke)"
"$compiler" -std=c11 "${flags[@]}" "$work/own/own_model.c" -o "$work/own/by_pkg_config" "${pc_flags[@]}"

cat >"$work/own/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.21)
project(own LANGUAGES C)
find_package(yoke 0.1 REQUIRED)
add_executable(by_cmake own_model.c)
target_link_libraries(by_cmake PRIVATE yoke::yoke)
CMAKE
cmake -S "$work/own" -B "$work/own/build" -DCMAKE_C_COMPILER="$compiler" -DCMAKE_C_FLAGS="${flags[*]}" \
    -DCMAKE_PREFIX_PATH="$work/copy" >"$work/out" || fail "$(cat "$work/out")"
cmake --build "$work/own/build" >"$work/out" || fail "$(cat "$work/out")"

for i in {1..200}; do
    echo "Sentence $i of this text says that an ox pulls more with a second ox beside it."
done >"$work/text.txt"

for program in "$work/own/by_pkg_config" "$work/own/build/by_cmake"; do
    expect 0 "$program" --data "$work/text.txt" --mesh dp=2,tp=2,pp=2 --steps 3
    says "step 2 loss 5\."
    says "own_model: good"
done
expect 0 "$work/own/by_pkg_config" --data "$work/text.txt" --mesh dp=2,tp=2,pp=2 --steps 3 --parity
expect 2 "$work/own/by_pkg_config" --data "$work/none.txt"
says none.txt
expect 2 "$work/own/by_pkg_config" --data "$work/text.txt" --mesh dp=2,up=2
says up
expect 2 "$work/own/by_pkg_config" --data "$work/text.txt" --mesh pp=7
says "pp <= 6"
