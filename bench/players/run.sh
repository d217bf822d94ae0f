#!/bin/sh
# run.sh OUT [SECONDS]: a ladder, its source and two gateways in a lab, and a browser at each viewer.
# OUT gets fast.json and slow.json (what the viewers saw), the gateways' reports, and a screenshot.
# What it needs and what came out: README.md beside it.
set -eu
here=$(dirname "$(readlink -f "$0")")
mkdir -p "$1"
out=$(readlink -f "$1")
seconds=${2:-60}
umbel=${UMBEL:-umbel}
[ -d "$here/node_modules" ] || { echo "run.sh: first run npm install in $here" >&2; exit 1; }
work=$(mktemp -d)
export UMBEL_LAB_DIR="$work/lab"
finish() {
    # shellcheck disable=SC2086
    [ -z "${programs:-}" ] || kill $programs 2>/dev/null || true
    "$umbel" lab down >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap finish EXIT
mkdir "$work/ladder"
"$umbel" lab up "$here/lab.toml"
in_lab() { host=$1; shift; exec "$umbel" lab exec "$host" -- "$@"; }
"$here/ladder.sh" "$work/ladder" 3600 &
programs=$!
(in_lab source "$umbel" stream --json --hls "$work/ladder" --name film \
    --repair-listen 0.0.0.0:7706 >"$out/source.jsonl" 2>"$out/source.log") &
programs="$programs $!"
for viewer in fast slow; do
    (in_lab $viewer "$umbel" gateway film --json --wait 30s \
        >"$out/gateway-$viewer.jsonl" 2>"$out/gateway-$viewer.log") &
    programs="$programs $!"
done
url=http://127.0.0.1:8081/film/master.m3u8
sleep 15
(in_lab slow node "$here/play.js" $url "$seconds" >"$out/slow.json") &
slow=$!
(in_lab fast node "$here/play.js" $url "$seconds" "$out/gateway.webp" >"$out/fast.json") &
fast=$!
wait $slow $fast
for viewer in fast slow; do
    echo "$viewer: $(cat "$out/$viewer.json")"
    grep '"event":"second"' "$out/gateway-$viewer.jsonl" | tail -n 1
done
