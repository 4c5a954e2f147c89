#!/usr/bin/env bash
# R15 and R16 of the main README, the closing tables, and the CPU beside libraries: from the receipts
# of stages 2 and 4 and the committed CSVs. bench/closing.sh [GPU.csv [CPU.csv]], after make stage2
# stage4.
set -eu
gpu=${1:-bench/results/h200/bench.csv} cpu=${2:-bench/results/cpu/bench.csv}
field() { # FILE METHOD SEQ CAUSAL HEAD_DIM COLUMN
    awk -F, -v m="$2" -v s="$3" -v c="$4" -v d="$5" -v k="$6" 'NR == 1 {for (i = 1; i <= NF; i++) n[$i] = i}
        $n["method"] == m && $n["seq"] == s && $n["causal"] == c && $n["head_dim"] == d && $n["batch"] == 1 {print $n[k]}' "$1"
}
line() { awk -v section="$2" -v first="$3" '$1 == section {on = 1} on && $1 == first {print; exit}' "$1"; }
two=$(mktemp) four=$(mktemp)
trap 'rm -f "$two" "$four"' EXIT
./stage2/run >"$two"
./stage4/run --device cpu >"$four"
read -r _ naive _ tiled _ _ score _ <<<"$(line "$two" R10 4096)"
read -r _ all _ less _ by _ <<<"$(line "$two" R11 4096)"
read -r _ _ _ causal _ ratio _ <<<"$(line "$four" R13 4096)"
agree=$(grep -c 'at most 2e-06 for every tile' "$two") held=$(line "$two" R9 4096 | awk '{print $4}')
whole=$(field "$cpu" cpu_stage0 4096 0 64 ms_median) tiles=$(field "$cpu" cpu_stage2 4096 0 64 ms_median)
echo "| N = 4096, 8 heads, fp32 | stage 0, whole | stage 2, tiles of 128 x 128 | |"
echo "|---|---|---|---|"
echo "| function computed | softmax(q kᵀ) v | the same | $([ "$agree" = 1 ] && echo 'within 2e-06' || echo 'NOT the same') |"
echo "| FLOPs | $naive G | $tiled G | the same |"
echo "| FLOPs, causal, with stage 4's bound | $naive G | $causal G | $ratio |"
echo "| scores held in memory | 512 MiB | $held MiB | one tile |"
echo "| score traffic | $score MiB | 0 MiB | |"
echo "| all traffic | $all MiB | $less MiB | $by |"
echo "| time on two CPU cores, tiles of 256 x 512 | $(printf %.0f "$whole") ms | $(printf %.0f "$tiles") ms | $(awk "BEGIN {printf \"%.2fx\", $whole / $tiles}") |"
echo
echo "| N, B=1 H=16 D=64 fp16 | PyTorch eager / stage 4 | causal | stage 4 of SDPA Flash | causal |"
echo "|---|---|---|---|---|"
for n in 128 512 1024 2048 4096 8192; do
    row="| $n |"
    for c in 0 1; do
        a=$(field "$gpu" torch_eager_fp16 $n $c 64 ms_median) b=$(field "$gpu" stage4 $n $c 64 ms_median)
        [ $n -gt 2048 ] || { a=$(field "$gpu" torch_eager_fp16 $n $c 64 ms_graph) b=$(field "$gpu" stage4 $n $c 64 ms_graph); }
        row="$row $(awk "BEGIN {printf \"%.1fx\", $a / $b}") |"
    done
    for c in 0 1; do row="$row $(field "$gpu" stage4 $n $c 64 ratio_to_sdpa_flash | awk '{printf "%.2f", $1}') |"; done
    echo "$row"
done
echo
echo "| N, 8 heads, D=64, fp32, two CPU cores | stage 0 with OpenBLAS / stage 2 | causal | SDPA / stage 2 | causal |"
echo "|---|---|---|---|---|"
for n in 512 1024 2048 4096; do
    row="| $n |"
    for method in cpu_openblas cpu_sdpa; do for c in 0 1; do
        a=$(field "$cpu" $method $n $c 64 ms_median) b=$(field "$cpu" cpu_stage2 $n $c 64 ms_median)
        row="$row $(awk "BEGIN {printf \"%.2fx\", $a / $b}") |"
    done; done
    echo "$row"
done
