#!/usr/bin/env bash
# The ladder of the main README, from a benchmark's CSV: bench/ladder.sh [FILE]
# N=8192, B=1 H=16 fp16; a cell holds D=64, D=64 causal, D=128, D=128 causal.
set -eu
csv=${1:-bench/results/h200/bench.csv}
awk -F, '
NR == 1 { for (i = 1; i <= NF; i++) n[$i] = i; next }
$n["batch"] == 1 && $n["seq"] == 8192 && $n["status"] == "ok" {
    key = $n["method"] " " $n["head_dim"] " " $n["causal"]
    ms[key] = $n["ms_median"]; flash[key] = $n["ratio_to_sdpa_flash"]; cudnn[key] = $n["ratio_to_sdpa_cudnn"]
    share[key] = 100 * $n["share_of_peak"]; extra[key] = $n["peak_extra_mib"]
}
function four(values, m, format,   text, d, c) {
    text = ""
    for (d = 64; d <= 128; d *= 2) for (c = 0; c < 2; c++)
        text = text (text == "" ? "" : " / ") ((m " " d " " c) in values ? sprintf(format, values[m " " d " " c]) : "-")
    return text
}
function row(name, m) {
    if (!((m " 64 0") in ms)) return
    printf "| %s | %.0f MiB | %s | %s | %s | %s |\n", name, extra[m " 64 0"], four(ms, m, "%.2f"), four(flash, m, "%.2f"), four(cudnn, m, "%.2f"), four(share, m, "%.0f")
}
END {
    print "| on the GPU | extra memory | ms | of SDPA Flash | of SDPA cuDNN | % of peak |"
    print "|---|---|---|---|---|---|"
    row("0 explicit, fp32", "explicit_fp32")
    row("0 explicit, fp16", "explicit_fp16")
    row("3 scalar.cu", "stage3_scalar")
    row("3 attention.cu", "stage3")
    row("4 causal skip", "stage4")
    row("5 async copy", "stage5")
    row("6 Hopper", "stage6")
    row("7 overlap", "stage7")
    row("Triton, 64 x 64", "triton_64x64")
    row("SDPA Flash", "sdpa_flash")
    row("SDPA cuDNN", "sdpa_cudnn")
}' "$csv"
