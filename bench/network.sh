#!/bin/sh
# Measures umbel without --rate where networks are narrow. What is measured: bench/README.md.
#
#   bench/network.sh paths --out bench/measured/network
set -eu
here=$(dirname "$(readlink -f "$0")")
command -v python3 >/dev/null || { echo "network.sh: python3 is missing (apt install python3)" >&2; exit 1; }
exec python3 -B "$here/peers/network.py" "$@"
