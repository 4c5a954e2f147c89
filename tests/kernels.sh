#!/usr/bin/env bash
# Reads what ptxas said of each object: a line a kernel and architecture with its registers. Fails
# on a spill, on a stack frame, and if nothing was said.
set -eu
awk '
/Compiling entry function/ {
    match($0, /'"'"'[^'"'"']*'"'"'/); name = substr($0, RSTART + 1, RLENGTH - 2)
    match($0, /for .sm_[0-9]+/); arch = substr($0, RSTART + 5, RLENGTH - 5)
    type = name ~ /bf16/ ? "bf16" : "fp16"; d = name ~ /Li128E/ ? 128 : 64
}
/bytes stack frame/ { stack = $1; spill = $5 + $9 }
/Used [0-9]+ registers/ {
    match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
    file = FILENAME; sub(/.*\/stage/, "stage", file); sub(/\.o\.log/, "", file)
    printf "%-28s %s D=%-3d %s %4d registers, %d bytes of stack, %d spilled\n", file, type, d, arch, registers, stack, spill
    kernels++; bad += stack > 0 || spill > 0
}
END {
    printf "%d kernels, %d with a spill or a stack frame\n", kernels, bad
    exit kernels == 0 || bad > 0
}' "$@"
