#!/usr/bin/env bash
# The measurements of bench/ say how they are called, refuse the rest with exit code 2, and kernels times what it is asked for.
# Rates are read by people; none is judged here.
set -euo pipefail

build=${YOKE_BUILD_DIR:?the build folder}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Runs a program of bench/ that must end with a code; its output goes to $work/out.
expect() {
    local wanted=$1 program=$2 code=0
    shift 2
    "$build/bench/$program" "$@" >"$work/out" 2>&1 || code=$?
    if [[ $code != "$wanted" ]]; then
        echo "test_bench: exit code $code, not $wanted, of: $program $* -- $(cat "$work/out")" >&2
        exit 1
    fi
}

says() {
    if ! grep -q -- "$1" "$work/out"; then
        echo "test_bench: '$1' is not in: $(cat "$work/out")" >&2
        exit 1
    fi
}

for program in allreduce kernels step; do
    expect 0 "$program" --help
    says "^usage: $program "
done

expect 2 kernels --threads 0
says '^kernels: --threads is 0; use 1 to 4096$'
expect 2 kernels --threads
says '^kernels: --threads needs a value'
expect 2 kernels --rows qkv
says '^kernels: unknown option --rows'
expect 2 kernels 2
says "^kernels: no row begins with '2'"
expect 2 allreduce 0
says '^allreduce: LARGEST_MB is 0; use 1 to 4096$'
expect 2 allreduce 1 many
says "^allreduce: ROUNDS: 'many' is not a whole number"
expect 2 allreduce 1 1 1
says '^allreduce: 1: there are LARGEST_MB and ROUNDS'
expect 2 step --steps
says '^step: --steps: options are --NAME VALUE'

expect 0 kernels --threads 1 jit rms_norm
says '^1 threads: copy'
others=$(sed 1,2d "$work/out" | grep -vE '^(jitter|rms_norm) ' || true)
if [[ -n $others || $(grep -c '^rms_norm ' "$work/out") -lt 2 || $(grep -c '^jitter ' "$work/out") -lt 2 ]]; then
    echo "test_bench: not the rows of jitter and rms_norm: $(cat "$work/out")" >&2
    exit 1
fi
