# What the scripts that compare with ns-2 share. To be sourced first: it goes to the directory of the
# project, and ends the script where ns-2 is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v ns >/dev/null || { echo "ns-2 is missing: install the package ns2" >&2; exit 1; }

# Sets UMBEL to the program to compare, and builds it, unless it is set.
find_umbel() {
    [ -z "${UMBEL:-}" ] || return 0
    cargo build -q --release -p umbel-laboratory
    UMBEL=${CARGO_TARGET_DIR:-target}/release/umbel-laboratory
}

# Sets `work` to a directory that goes when the script ends.
make_work() {
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
}
