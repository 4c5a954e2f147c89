#!/usr/bin/env bash
# Reads what ptxas said of each object: a line a kernel (D, and if it has one its number of warps or
# of consumers) and architecture with its registers; and each kernel as PTX. Fails on a spill, on a
# stack frame, where ptxas lets one wgmma wait for another, where a kernel writes results byte by byte
# or never 16 bytes at a time, and if nothing was said.
set -eu
awk '
/Compiling entry function/ {
    match($0, /'"'"'[^'"'"']*'"'"'/); name = substr($0, RSTART + 1, RLENGTH - 2)
    match($0, /for .sm_[0-9]+/); arch = substr($0, RSTART + 5, RLENGTH - 5)
    type = name ~ /bf16/ ? "bf16" : "fp16"
    match(name, /Li[0-9]+E/); d = substr(name, RSTART + 2, RLENGTH - 3); name = substr(name, RSTART + RLENGTH)
    more = match(name, /^Li[0-9]+E/) ? substr(name, 3, RLENGTH - 3) : ""
}
/wgmma.mma_async instructions are serialized/ { print; serial++ }
/bytes stack frame/ { stack = $1; spill = $5 + $9 }
/Used [0-9]+ registers/ {
    match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
    file = FILENAME; sub(/.*\/stage/, "stage", file); sub(/\.o\.log/, "", file)
    printf "%-28s %s D=%-3d %1s %s %4d registers, %d bytes of stack, %d spilled\n", file, type, d, more, arch, registers, stack, spill
    kernels++; bad += stack > 0 || spill > 0
}
/st\.global[.a-z]*\.[bsu]8/ { bytes[FILENAME]++ }
/st\.global\.v4/ { pieces[FILENAME]++ }
/st\.global/ { stores[FILENAME]++ }
END {
    for (file in bytes) printf "%s: %d of its %d stores write a byte\n", file, bytes[file], stores[file]
    for (file in stores) if (!pieces[file]) { printf "%s: writes nothing 16 bytes at a time\n", file; bad++ }
    printf "%d kernels, %d with a spill or a stack frame\n", kernels, bad
    exit kernels == 0 || bad > 0 || serial > 0 || length(bytes) > 0 || length(stores) == 0
}' "$@"
