#!/usr/bin/env bash
# Packet-hops per second of processor time, ns-2 (with its default event queue and with its
# fastest one) beside umbel-sim, on the tree of tree.tcl. Takes the best of three runs each.
#
#   bench/ns2/run.sh [packets]
#
# Needs ns-2 (Debian's package ns2) and cargo.
source "$(dirname "$0")/common.sh"
packets=${1:-5000}

for scheduler in Calendar Heap; do
    for _ in 1 2 3; do
        ns bench/ns2/tree.tcl "$packets" "$scheduler"
    done | sort -g -k2 | head -1 |
        awk -v name="ns-2 $scheduler" '{ printf "%-22s %8.2f Mhops/s\n", name, $1 / $2 / 1e6 }'
done
cargo bench -q -p umbel-sim --bench forward "tree 128" 2>/dev/null |
    awk '$3 + 0 > best && !/no rate/ { best = $3 } END { printf "%-22s %8.2f Mhops/s\n", "umbel-sim", best }'
