#!/bin/sh
# Compiles SOURCE, a program for the kernel, to FILE, by default to the .o beside it. That file is
# checked in, so that a build of umbel needs no clang. The version is fixed, since others make other
# code.
#
#   build.sh SOURCE.bpf.c [FILE]
set -eu
include=$(cd "$(dirname "$0")" && pwd)
source=$(basename "$1")
out=$(realpath "${2:-${1%.c}.o}")
cd "$(dirname "$1")"
clang-16 -O2 -g -target bpf -mcpu=v3 -Wall -Wextra -Wno-unused-variable -Wno-unused-parameter -Werror \
    -I"$include" -ffile-prefix-map="$include"=bpf -fdebug-compilation-dir=. -c "$source" -o "$out"
# What is left of -g describes types and functions, which the kernel asks for.
llvm-strip-16 -g "$out"
