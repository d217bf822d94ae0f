#!/usr/bin/env bash
# LMS and PGM in ns-2 (Agent/LMS, Agent/PGM) and in umbel-sim, on the same trees with the same delays
# and losses (recovery-network.awk): each receiver's mean recovery latency in ms, its requests, its
# repairs and the repairs that it did not need. Compares them run by run (paired.awk).
#
#   bench/ns2/recovery.sh [seeds]
#
# UMBEL is the program to compare; without it one is built. Needs ns-2 (Debian's package ns2).
source "$(dirname "$0")/common.sh"
seeds=${1:-30}
find_umbel
make_work

# Sections of the scenario: the constants are those of ns-2's agents, or what they do. Headers make
# packets of 1,000 bytes of these.
cat >"$work/lms.section" <<'SECTION'
[lms]
paper = true
packet_size = 944
interval = "400ms"
heartbeat_min = "1h"
heartbeat_max = "1h"
SECTION
cat >"$work/pgm.section" <<'SECTION'
[pgm]
packet_size = 944
interval = "400ms"
wait = "70ms"
nak_backoff = "30ms"
nak_repeat = "50ms"
nak_rdata = "1s"
heartbeat = "500ms"
SECTION
# In ns-2 the source belongs to the router at the root.
cat >"$work/lms.routers" <<'SECTION'
[lms.router]
source_as_replier = true
SECTION
cat >"$work/pgm.routers" <<'SECTION'
[pgm.router]
nak_elimination = "5s"
nak_repeat = "50ms"
state_expiry = "10s"
SECTION

# Prints the members' parts in one run of ns-2. Flow 8 is requests, flow 3 is repairs; hosts have the
# numbers from 2^depth - 1 on.
ns2() {
    ns bench/ns2/recovery.tcl "$1" "$work/network.tcl" "$3" "$work/trace" >"$work/statistics"
    awk -v seed="$3" -v routers="$((2 ** $2 - 1))" '
        FNR == NR && $1 == "+" && $3 >= routers {
            if ($8 == 8) asked[$3 - routers + 1]++
            if ($8 == 3) repaired[$3 - routers + 1]++
        }
        FNR == NR { next }
        /^(rcv|pgmRecv-)[0-9]+:/ {
            member = $1
            gsub(/[^0-9]/, "", member)
            member++
            members[member] = 1
        }
        /reached max_nak/ { print "a packet was given up in ns-2" >"/dev/stderr"; exit failed = 1 }
        /DMCASTs sent|RDATA transmitted/ { repaired[0] = $NF }
        /atency \(min/ { latency[member] = 1000 * $NF }
        # LMS has it in round trips, and tells these below.
        /Rtt:/ { if (member in latency) latency[member] *= $2 }
        /Duplicate (Replies|RDATA)/ { duplicates[member] = $NF }
        END {
            if (failed) exit
            print "ns2", seed, 0, "-", 0, repaired[0] + 0, 0
            for (member in members)
                print "ns2", seed, member, member in latency ? latency[member] : "-",
                    asked[member] + 0, repaired[member] + 0, duplicates[member] + 0
        }' "$work/trace" "$work/statistics"
}

# Prints the same of one run of umbel.
umbel() {
    packets=$(awk '$2 == "packets" { print $3 }' "$work/network.tcl")
    {
        cat "$work/network.toml" "$work/$1.section"
        echo "packets = $packets"
        cat "$work/$1.routers"
    } >"$work/scenario.toml"
    "$UMBEL" sim run "$work/scenario.toml" --seed "$3" --out "$work/out" -q >/dev/null
    awk -F, -v seed="$3" '
        FNR == 1 { for (n = 1; n <= NF; n++) column[$n] = n; file++; next }
        file == 1 {
            latency = $column["repaired"] > 0 ? 1000 * $column["latency_s"] : "-"
            if ($column["unrepaired"] > 0) { print "a packet still lacks" >"/dev/stderr"; exit 1 }
            print "umbel", seed, substr($column["receiver"], 2), latency, $column["requests"],
                $column["repairs"], $column["duplicates"]
        }
        file == 2 { repairs += $column["source_repairs"] }
        END { print "umbel", seed, 0, "-", 0, repairs + 0, 0 }
    ' "$work/out/receivers.csv" "$work/out/losses.csv"
}

for protocol in lms pgm; do
    for depth in 3 4 5; do
        for seed in $(seq "$seeds"); do
            awk -v depth="$depth" -v seed="$seed" -v tcl="$work/network.tcl" \
                -v toml="$work/network.toml" -f bench/ns2/recovery-network.awk
            ns2 "$protocol" "$depth" "$seed"
            umbel "$protocol" "$depth" "$seed"
        done | awk -v title="$protocol $depth" -v seeds="$seeds" -f bench/ns2/paired.awk
    done
done
