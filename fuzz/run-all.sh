#!/usr/bin/env bash
# Fuzzes all targets in turn, or those that are named: fuzz/run-all.sh [--seconds N] [--rounds N]
# [--work DIR] [TARGET …]
#
# Each target runs for N seconds (60), with coverage and AddressSanitizer, from its corpus in the
# repository. New inputs go to DIR (target/fuzz-work), not to the repository. Ends at the first
# finding, which is in DIR/TARGET/artifacts. Says after each target how many inputs ran in all.
#
# It needs a nightly compiler and one for C++. `cargo fuzz` is not needed: the flags are the same.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=60 rounds=1 work=target/fuzz-work targets=()
while [ $# -gt 0 ]; do
    case $1 in
        --seconds) seconds=${2:?--seconds needs a number} && shift 2 ;;
        --rounds) rounds=${2:?--rounds needs a number} && shift 2 ;;
        --work) work=${2:?--work needs a folder} && shift 2 ;;
        -*) echo "run-all.sh: unknown option $1" >&2 && exit 2 ;;
        *) targets+=("$1") && shift ;;
    esac
done
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(basename -a -s .rs fuzz/fuzz_targets/*.rs)
fi

triple=$(rustc -vV | sed -n 's/^host: //p')
# The flags of `cargo fuzz`, with assertions, and without optimising what they check.
flags=(
    -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares
    -Zsanitizer=address
    -Cdebug-assertions -Coverflow-checks -Ccodegen-units=16
    --cfg fuzzing
)
bins=()
for target in "${targets[@]}"; do bins+=(--bin "$target"); done
RUSTFLAGS="${flags[*]}" cargo +nightly build --release --locked --manifest-path fuzz/Cargo.toml \
    --target "$triple" "${bins[@]}"

total=0
for ((round = 1; round <= rounds; round++)); do
    for target in "${targets[@]}"; do
        mkdir -p "$work/$target/corpus" "$work/$target/artifacts"
        log=$work/$target/log
        seeds=()
        if [ -d "fuzz/corpus/$target" ]; then seeds+=("fuzz/corpus/$target"); fi
        if ! "target/$triple/release/$target" -max_total_time="$seconds" -print_final_stats=1 \
            -rss_limit_mb=2048 -artifact_prefix="$work/$target/artifacts/" \
            "$work/$target/corpus" "${seeds[@]}" >"$log" 2>&1; then
            tail -n 40 "$log" >&2
            echo "$target: a finding, in $work/$target/artifacts" >&2
            exit 1
        fi
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        total=$((total + ${runs:-0}))
        echo "$(date -u +%FT%TZ) round $round $target: ${runs:-no} inputs, $total in all"
    done
done
