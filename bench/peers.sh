#!/bin/sh
# Measures umbel beside other tools that copy one file to many receivers, on one test-bed
# of network namespaces. What it measures and what the columns mean: bench/README.md.
#
#   bench/peers.sh --cells quick --out results
set -eu
here=$(dirname "$(readlink -f "$0")")
command -v python3 >/dev/null || { echo "peers.sh: python3 is missing (apt install python3)" >&2; exit 1; }
exec python3 -B "$here/peers/main.py" "$@"
