#!/usr/bin/env bash
# Each gate of tools/gates is silent on a good tree and finds the fault of its kind in a bad one.
# labels: quick
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
gates=$source/tools/gates
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
checked=0

# A file of the tree from standard input, compiled if it is a source of the library.
put() {
    mkdir -p "$(dirname "$tree/$1")"
    cat >"$tree/$1"
    if [[ $1 == src/*.c ]]; then
        local object=$tree/build/CMakeFiles/yoke_lib.dir/$1.o
        mkdir -p "$(dirname "$object")"
        gcc -std=c17 -D_POSIX_C_SOURCE=200809L -fPIC -w -I "$tree/src" -c "$tree/$1" -o "$object"
    fi
}

good_tree() {
    rm -rf "$tree"
    mkdir -p "$tree/include/yoke"
    cp "$source/.clang-format" "$tree"
    put include/yoke/good.h <<'C'
int yoke_good(int a);
C
    put src/base/good.h <<'C'
int yoke_good(int a);
C
    put src/base/good.c <<'C'
#include "base/good.h"
#include <stdlib.h>
/* The ranks of printf("%d") and YOKE_AXIS_TP are only spoken of. */
static int (*const table[])(int) = {yoke_good, abs};
int yoke_good(int a)
{
    free(malloc(1));
    return a > 0 ? a : table[1](a);
}
C
    put src/op/good.c <<'C'
#include "base/good.h"
/* No rank takes part in an all_reduce here. */
int yoke_op_good(int frank)
{
    return yoke_good(frank);
}
C
    put tools/good <<'C'
#!/usr/bin/env bash
echo good
C
}

# Expects gate $1 to fail with a finding that matches $2.
expect() {
    local output status=0
    output=$("$gates" --root "$tree" --build "$tree/build" "$1" 2>&1) || status=$?
    if [[ $status -ne 1 ]] || ! grep -qE "$2" <<<"$output"; then
        printf "after %s faults: gate %s: expected exit 1 and /%s/, got exit %s and:\n%s\n" "$checked" "$1" "$2" "$status" "$output"
        exit 1
    fi
    checked=$((checked + 1))
    good_tree
}

lines() {
    local i
    for ((i = 0; i < $1; i++)); do
        echo "$2"
    done
}

good_tree
"$gates" --root "$tree" --build "$tree/build" || { echo "the good tree is not good to all gates" && exit 1; }

echo '#include "op/bad.h"' | put src/base/bad.h
expect folders '^src/base/bad.h:1: base/ includes "op/bad.h"'
echo '#include "good.h"' | put src/op/bad.h
expect folders '^src/op/bad.h:1: include "good.h" by its folder'
echo '#include "base/good.h"' | put include/yoke/bad.h
expect folders '^include/yoke/bad.h:1: a public header'
echo 'int yoke_bad(int a);' | put src/utils/bad.h
expect folders '^src/utils/bad.h:1: .* not in the order'

echo 'size_t yoke_bad(void);' | put src/op/bad.h
expect headers '^src/op/bad.h:1: does not compile alone as C11'
echo 'int yoke_bad(int class);' | put include/yoke/bad.h
expect headers '^include/yoke/bad.h:1: does not compile alone as C\+\+17'

printf 'int yoke_bad;\n\nint bad(void) { return 0; }\n' | put src/op/bad.c
expect names "^src/op/bad.c:3: exports 'bad'"

printf '\nint yoke_bad = 1;\n' | put src/op/bad.c
expect globals "^src/op/bad.c:2: 'yoke_bad' is a mutable variable"
echo 'int yoke_bad(void) { static int count; return ++count; }' | put src/op/bad.c
expect globals "^src/op/bad.c:1: 'count.* is a mutable variable"
echo 'static _Thread_local int n = 3; int yoke_bad(void) { return ++n; }' | put src/op/bad.c
expect globals "^src/op/bad.c:1: 'n' is a mutable variable"

for call in 'printf("%d", 1)' 'puts("x")' 'fputs("xy", stderr)' 'exit(1)' 'abort()' 'getenv("HOME")' 'malloc(1)' \
    'free(stdin)' '_exit(0)' 'rand()'; do
    printf '#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\nvoid yoke_bad(void)\n{\n    %s;\n}\n' \
        "$call" | put src/op/bad.c
    expect calls "^src/op/bad.c:6: refers to '"
done

lines 601 '/* Long. */' | put src/op/bad.c
expect size '^src/op/bad.c:601: the file is longer'
{ echo 'void yoke_bad(int *a) {' && lines 59 '    ++*a;' && echo '}'; } | put src/op/bad.c
expect size '^src/op/bad.c:1: yoke_bad has 61 lines'
echo 'int yoke_bad(int a, int (*b)(int, int), int c, int d, int e, int f, int g) { return a; }' | put src/op/bad.c
expect size '^src/op/bad.c:1: yoke_bad has 7 parameters'

for word in n_ranks rank YOKE_AXIS_TP yoke_all_reduce_start; do
    printf '/* Not here:\n rank */\nint yoke_bad(int %s);\n' "$word" | put src/model/bad.c
    expect blind "^src/model/bad.c:3: names \"$word\""
done
echo 'int yoke_bad(int rank);' | put src/pipe/schedule_bad.c
expect blind '^src/pipe/schedule_bad.c:1: names "rank"'
for word in YOKE_AXIS_TP YOKE_AXIS_FSDP has_fsdp is_zero_2 sequence_parallel context_parallel; do
    for folder in layout graph program run; do
        echo "int $word;" | put "src/$folder/bad.h"
        expect blind "^src/$folder/bad.h:1: names \"$word\": a strategy"
    done
done
echo 'static int yoke_bad(const int *c) { return c->zero; }' | put src/run/bad.h
expect blind '^src/run/bad.h:1: names "zero"'

printf 'See /%s/me/notes.\n' home | put docs/bad.md
expect words '^docs/bad.md:1: names a place'
printf '/* TO%s: later */\n' DO | put src/op/bad.c
expect words '^src/op/bad.c:1: an open end'
printf 'int yoke_bad(void); \n' | put src/op/bad.c
expect words '^src/op/bad.c:1: blanks'
printf '\tint yoke_bad(void);\n' | put src/op/bad.c
expect words '^src/op/bad.c:1: a tab'

printf 'int yoke_bad(int   a);\n' | put src/op/bad.c
expect format '^src/op/bad.c:1: clang-format'

printf '#!/bin/bash\nif true; then\n' | put tools/bad
expect shell '^tools/bad:'

rm -rf "$tree/build/CMakeFiles"
expect names 'no objects'

echo "$checked faults were found"
