#!/usr/bin/env bash
# RLM by its authors' agents in ns-2 and in umbel-sim, on the same networks: the mean level of each
# class of receivers in the last 240 s of 600 s, the time until they reach their best level, how often
# they try the one above, and loss. Compares means over the seeds (rlm.awk).
#
#   bench/ns2/rlm.sh [seeds]
#
# ns-2 runs twice: as its agents are, and with the join-timer drawn anew when a layer is dropped, as
# here. UMBEL is the program to compare; without it one is built. Needs ns-2 (Debian's package ns2).
source "$(dirname "$0")/common.sh"
seeds=${1:-30}
find_umbel
make_work

# Prints the scenario with so many fast and slow receivers. The constants are those of ns-2's agents.
scenario() {
    cat <<'SCENARIO'
[topology]
generator = "star"
source_link = { rate = "1.5M", queue = 20, delay = "10ms" }
SCENARIO
    cat <<SCENARIO
[[topology.receivers]]
name = "fast"
count = $1
access = { delay = "10ms" }
SCENARIO
    [ "$2" -eq 0 ] || cat <<SCENARIO
[[topology.receivers]]
name = "slow"
count = $2
access = { delay = "10ms", down = { rate = "750k", queue = 20 } }
SCENARIO
    cat <<'SCENARIO'
[rlm]
rates = ["32k", "64k", "128k", "256k", "512k", "1024k", "2048k"]
starts = ["30s", "120s"]
length = "600s"
relaxation = 0.75
k2 = 1.5
detection_time = "5s"
detection_deviation = "2s"
join_timer_max = "60s"
join_timer_ceiling = "60s"
loss_threshold = 0.25
loss_packets = 10
suppressions = 1000000
reorder_packets = 0
SCENARIO
}

# measures SIMULATOR FAST: what came of the run on standard input.
measures() {
    awk -v simulator="$1" -v fast="$2" -v duration=600 -v measured=240 -f bench/ns2/rlm-levels.awk
}

# Prints what came of one run of ns-2.
ns2() {
    ns bench/ns2/rlm.tcl "$1" "$2" "$3" "$4" 2>"$work/warnings" >"$work/run"
    measures ns2 "$1" <"$work/run"
}

# Prints what came of one run of umbel. A receiver alone in its class has no number in its name.
umbel() {
    "$UMBEL" sim run "$work/scenario.toml" --seed "$2" --out "$work/out" -q >/dev/null
    {
        sort -t, -k3,3g -s "$work/out/levels.csv"
        cat "$work/out/receivers.csv"
    } | awk -F, -v fast="$1" '
        /^seed,/ { for (n = 1; n <= NF; n++) column[$n] = n; next }
        {
            number = $2 ~ /[0-9]$/ ? substr($2, 5) : 1
            if ($2 ~ /^slow/) number += fast
        }
        NF == 4 { print "level", $3, number, $4; next }
        { print "loss", number, $column["loss"] }
    ' | measures umbel "$1"
}

for redraw in 0 1; do
    for network in "1 0" "8 0" "4 4"; do
        read -r fast slow <<<"$network"
        scenario "$fast" "$slow" >"$work/scenario.toml"
        for seed in $(seq "$seeds"); do
            ns2 "$fast" "$slow" "$seed" "$redraw"
            umbel "$fast" "$seed"
        done | awk -v title="$redraw $fast+$slow" -f bench/ns2/rlm.awk
    done
done
