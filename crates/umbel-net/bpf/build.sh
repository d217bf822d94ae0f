#!/bin/sh
# Compiles delivery.bpf.c to FILE, by default to delivery.bpf.o beside it. That file is checked in,
# so that a build of umbel needs no clang. The version is fixed, since others make other code.
#
#   build.sh [FILE]
set -eu
cd "$(dirname "$0")"
out=${1:-delivery.bpf.o}
clang-16 -O2 -g -target bpf -mcpu=v3 -Wall -Wextra -Wno-unused-variable -Wno-unused-parameter -Werror \
    -fdebug-compilation-dir=. -c delivery.bpf.c -o "$out"
# What is left of -g describes types and functions, which the kernel asks for.
llvm-strip-16 -g "$out"
