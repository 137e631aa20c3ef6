#!/usr/bin/env bash
# The documents say what is there: links, paths, names, commands, options and the drawing of the schedule.
# labels: quick
#
# Each check is also shown a tree with a fault of its kind, and must find it.
# shellcheck disable=SC2016 # Backticks in single quotes are those of the documents.
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
yoke=${YOKE_BINARY:-$source/build/release/yoke}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checked=0

documents() {
    find . -name '*.md' -not -path './build/*' -not -path './runs/*' -not -path './.git/*' | sort
}

# "document target" for every link that is not of the web.
links() {
    documents | while read -r document; do
        { grep -oE '\]\([^)#]+' "$document" || true; } | sed 's/^](//' | { grep -vE '^[a-z]+:' || true; } |
            sed "s|^|$document |"
    done
}

check_links() {
    links | while read -r document target; do
        if [[ ! -e $(dirname "$document")/$target ]]; then
            echo "$document: links to $target, which is not there"
        fi
    done
}

# What is written `like/this.c`, from the root of the project; adding.md names files that its reader is to make.
check_paths() {
    documents | { grep -v '/adding.md$' || true; } | while read -r document; do
        { grep -oE '`(src|include|tests|tools|bench|examples|docs|cmake)/[A-Za-z0-9_.*/-]*`' "$document" || true; } |
            tr -d '`' | sort -u | while read -r path; do
                if ! compgen -G "$path" >/dev/null && [[ $path != *.md || ! -e $path ]]; then
                    echo "$document: names $path, which is not there"
                fi
            done
    done
}

# `yoke_words` and `YOKE_WORDS` stand in the code, `yoke_some_` as the beginning of one.
check_names() {
    documents | { grep -v '/adding.md$' || true; } | while read -r document; do
        { grep -oE '`(yoke|YOKE)_[A-Za-z0-9_]+`' "$document" || true; } | tr -d '`' | sort -u | while read -r name; do
            if ! grep -rqE "\\b$name" src include; then
                echo "$document: names $name, which the code does not have"
            fi
        done
    done
}

# Every folder of the sources has its row in the map of the README and in the design.
check_map() {
    local folder
    for folder in src/*/; do
        folder=${folder%/}
        grep -qF "]($folder)" README.md || echo "README.md: the map lacks $folder"
        grep -qE "^ +$folder/ " docs/design.md || echo "docs/design.md: the folders lack $folder"
    done
    { grep -oE '^ +src/[a-z]+/' docs/design.md || true; } | tr -d ' ' | while read -r folder; do
        [[ -d $folder ]] || echo "docs/design.md: lists $folder, which is not there"
    done
}

check_decisions() {
    local page number
    for page in docs/decisions/[0-9]*.md; do
        grep -qF "($(basename "$page"))" docs/decisions/README.md || echo "docs/decisions/README.md: lacks $page"
        number=$(basename "$page" | sed -E 's/^0*([0-9]+)-.*/\1/')
        [[ $(head -n 1 "$page") == "# $number. "* ]] || echo "$page: the title does not begin with the file's number"
    done
}

# Command lines of the README: indented, behind a $ or between backticks.
command_lines() {
    { grep -oE '(^    |^\$ |`)(build/release/)?yoke [a-z][^`#]*' README.md || true; } |
        sed -E 's/^[ $`]*(build\/release\/)?yoke //'
}

check_commands() {
    local commands help command rest option
    commands=$("$yoke" --help)
    command_lines | while read -r command rest; do
        if ! grep -qE "^  $command " <<<"$commands"; then
            echo "README.md: yoke $command is no command"
            continue
        fi
        help=$("$yoke" "$command" --help)
        { grep -oE -- '--[a-z_-]+' <<<"$rest" || true; } | while read -r option; do
            grep -qE -- "^  $option( |$)" <<<"$help" || echo "README.md: yoke $command has no $option"
        done
    done
}

# The run file of the demo is a good one, and the README shows its schedule.
check_schedule() {
    local drawing
    if ! drawing=$("$yoke" show schedule examples/austen.yaml --data "" 2>&1); then
        echo "examples/austen.yaml: $drawing"
        return
    fi
    grep -E '^stage' <<<"$drawing" | while read -r line; do
        grep -qF "$line" README.md || echo "README.md: does not show the schedule of examples/austen.yaml: $line"
    done
}

check_demo() {
    local options
    bash -n tools/demo || echo "tools/demo: does not parse"
    for options in "--steps 0" "--steps many" "--data no-such-file" "--wrong" "--mesh"; do
        # shellcheck disable=SC2086 # They are words.
        tools/demo $options >"$work/out" 2>&1 && echo "tools/demo: takes $options"
        [[ $(wc -l <"$work/out") -eq 1 && $(cat "$work/out") == "demo: "* ]] ||
            echo "tools/demo: $options does not end with one line about it"
    done
    tools/demo --help | grep -q -- '--data FILE' || echo "tools/demo: --help does not tell of --data"
}

checks="links paths names map decisions commands schedule demo"

run_checks() {
    local check
    for check in "$@"; do
        "check_$check"
    done
}

# expect_fault CHECK WORDS: the tree at hand has a fault, and the check says so.
expect_fault() {
    local found
    found=$("check_$1")
    if [[ $found != *"$2"* ]]; then
        echo "check $1 did not find '$2': ${found:-silence}"
        exit 1
    fi
    checked=$((checked + 1))
}

copy_tree() {
    rm -rf "$work/tree"
    mkdir -p "$work/tree"
    (cd "$source" && find . \( -name .git -o -name build -o -name runs \) -prune -o -type f -print0 |
        xargs -0 cp --parents -t "$work/tree")
    cd "$work/tree"
}

cd "$source"
# shellcheck disable=SC2086 # They are words.
faults=$(run_checks $checks)
if [[ -n $faults ]]; then
    echo "$faults"
    exit 1
fi

copy_tree
echo '[gone](docs/gone.md) and `src/base/gone.c`, `yoke_gone_away`, `yoke gone`, `yoke train --gone 1`' >>README.md
mkdir src/unknown
sed -i 's/^stage 0 .*$/stage 0/' README.md
touch docs/decisions/9999-lost.md
sed -i '1s/.*/# No number/' docs/decisions/0001-*.md
sed -i 's/fail 2/fail 0/; s/echo "demo: /echo "/' tools/demo
expect_fault links "README.md: links to docs/gone.md"
expect_fault paths "names src/base/gone.c"
expect_fault names "names yoke_gone_away"
expect_fault map "README.md: the map lacks src/unknown"
expect_fault map "docs/design.md: the folders lack src/unknown"
expect_fault decisions "lacks docs/decisions/9999-lost.md"
expect_fault decisions "0001-mask-lets-one-reduction-complete-the-norm.md: the title"
expect_fault commands "yoke gone is no command"
expect_fault commands "yoke train has no --gone"
expect_fault schedule "does not show the schedule"
expect_fault demo "does not end with one line"
echo "steps: many" >>examples/austen.yaml
expect_fault schedule "examples/austen.yaml"
echo "$checked faults found"
