#!/usr/bin/env bash
# SRM in ns-2 (Agent/SRM) and in umbel-sim, on the same binary trees with the same losses: recovery
# latency in round trips to the source, requests and repairs for a loss, means over the seeds.
#
#   bench/ns2/srm.sh [seeds]
#
# Needs ns-2 (Debian's package ns2) and cargo.
set -euo pipefail
cd "$(dirname "$0")/../.."
seeds=${1:-40}

command -v ns >/dev/null || { echo "ns-2 is missing: install the package ns2" >&2; exit 1; }
cargo build -q --release -p umbel-sim --example srm_tree
program=${CARGO_TARGET_DIR:-target}/release/examples/srm_tree
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Prints what one run of ns-2 came to, from the agents' statistics.
ns2() {
    ns bench/ns2/srm.tcl "$1" "$2" "$3" "$log" >/dev/null
    awk '
        { for (i = 1; i < NF; i++) {
            if ($i == "serviceTime" && /type request/) { latency += $(i + 1); lacked++ }
            if ($i == "#sent" || $i == "{#sent}") { if (/type request/) asked += $(i + 1); else repaired += $(i + 1) }
        } }
        END { if (!lacked) exit 1; print latency / lacked, asked + 0, repaired + 0 }' "$log"
}

printf '%-6s %-9s %-10s %8s %9s %8s\n' depth loss simulator latency requests repairs
for depth in 3 4 5; do
    for place in source receiver; do
        for seed in $(seq "$seeds"); do ns2 "$depth" "$place" "$seed"; done |
            awk -v depth="$depth" -v place="$place" '
                { l += $1; q += $2; r += $3 }
                END { printf "%-6s %-9s %-10s %8.3f %9.2f %8.2f\n", depth, place, "ns-2", l / NR, q / NR, r / NR }'
        read -r latency requests repairs < <("$program" "$depth" "$place" "$seeds")
        printf '%-6s %-9s %-10s %8.3f %9.2f %8.2f\n' "$depth" "$place" umbel-sim "$latency" "$requests" "$repairs"
    done
done
