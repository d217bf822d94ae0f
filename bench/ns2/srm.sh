#!/usr/bin/env bash
# SRM in ns-2 (Agent/SRM) and in umbel-sim, on the same binary trees with the same losses: recovery
# latency in round trips to the source, requests and repairs for a loss. Compares means over the
# seeds, of the whole group and of each member by itself (srm.awk).
#
#   bench/ns2/srm.sh [seeds]
#
# Needs ns-2 (Debian's package ns2) and cargo.
source "$(dirname "$0")/common.sh"
seeds=${1:-40}
cargo build -q --release -p umbel-sim --example srm_tree
program=${CARGO_TARGET_DIR:-target}/release/examples/srm_tree
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Prints the members' parts in one run of ns-2 as srm_tree does, but for members without any. The
# root is ns-2's node 0, below it come the levels of the tree, then the source.
ns2() {
    ns bench/ns2/srm.tcl "$1" "$2" "$3" "$log" >/dev/null
    awk -v seed="$3" -v leaves="$((2 ** $1))" '
        {
            member = $3 - leaves + 2
            if (member > leaves) member = 0
            seen[member] = 1
            for (i = 1; i < NF; i++) {
                if ($i == "serviceTime" && /type request/) latency[member] = $(i + 1)
                if ($i == "#sent" || $i == "{#sent}") {
                    if (/type request/) asked[member] += $(i + 1)
                    else repaired[member] += $(i + 1)
                }
            }
        }
        END {
            for (member in seen)
                print seed, member, member in latency ? latency[member] : "-",
                    asked[member] + 0, repaired[member] + 0
        }' "$log"
}

for depth in 3 4 5; do
    for place in source receiver; do
        {
            for seed in $(seq "$seeds"); do ns2 "$depth" "$place" "$seed"; done | sed 's/^/ns2 /'
            "$program" "$depth" "$place" "$seeds" | sed 's/^/umbel /'
        } | awk -v depth="$depth" -v place="$place" -v seeds="$seeds" -f bench/ns2/srm.awk
    done
done
