#!/usr/bin/env bash
# The tables of docs/performance.md, bench/README.md and of the READMEs of stages 3 to 7, from a
# benchmark's CSV: bench/tables.sh short | beside | carried | stage3 ... stage7 [FILE]. Cells with four
# numbers hold D=64, D=64 causal, D=128, D=128 causal; fp16, 16 heads. bench/tables.sh repeat [FILE...]
# compares runs of the same rows.
set -eu
what=${1:-} csv=${2:-bench/results/h200/bench.csv}
if [ "$what" = repeat ]; then
    shift
    [ $# -gt 0 ] || set -- bench/results/h200/repeat/large_*.csv
    exec awk -F, '
    FNR == 1 { for (i = 1; i <= NF; i++) n[$i] = i; next }
    {
        m = $n["method"]; row = m " " $n["batch"] " " $n["seq"] " " $n["head_dim"] " " $n["causal"]; x = $n["tflops"] + 0; h = $n["ms_host"] + 0
        if (!(row in low) || x < low[row]) low[row] = x
        if (x > high[row]) high[row] = x
        if (!(m in from) || h < from[m]) from[m] = h
        if (h > to[m]) to[m] = h
        if (high[row] / low[row] > apart[m]) apart[m] = high[row] / low[row]
    }
    END {
        print "| method | TFLOP/s apart by up to | the host, ms a call |"
        print "|---|---|---|"
        split("stage5 stage6 stage7 sdpa_flash sdpa_cudnn", methods, " ")
        for (i = 1; i <= 5; i++) printf "| %s | %.0f%% | %.3f to %.3f |\n", methods[i], 100 * (apart[methods[i]] - 1), from[methods[i]], to[methods[i]]
    }' "$@"
fi
case $what in short | beside | carried | stage[3-7]) ;; *) echo "usage: $0 short | beside | carried | stage3 ... stage7 [FILE] | repeat [FILE...]" >&2; exit 2 ;; esac
awk -F, -v what="$what" '
NR == 1 { for (i = 1; i <= NF; i++) n[$i] = i; next }
$n["status"] == "ok" {
    key = $n["method"] " " $n["batch"] " " $n["seq"] " " $n["head_dim"] " " $n["causal"]
    ms[key] = $n["ms_median"]; us[key] = 1000 * $n["ms_graph"]; tflops[key] = $n["tflops"]
    flash[key] = $n["ratio_to_sdpa_flash"]; cudnn[key] = $n["ratio_to_sdpa_cudnn"]
}
function four(values, m, batch, seq, format,   text, d, c) {
    text = ""
    for (d = 64; d <= 128; d *= 2) for (c = 0; c < 2; c++)
        text = text (text == "" ? "" : " / ") sprintf(format, values[m " " batch " " seq " " d " " c])
    return text
}
function speed(m, batch, seq) {
    return four(tflops, m, batch, seq, "%.0f") " | " four(flash, m, batch, seq, "%.2f") " | " four(cudnn, m, batch, seq, "%.2f")
}
function beside(batch, seq,   s) {
    for (s = 5; s <= 7; s++) printf "| %d, %d | %d | %s |\n", batch, seq, s, speed("stage" s, batch, seq)
}
function of(a, b, c) { return ms[a " 1 8192 64 " c] / ms[b " 1 8192 64 " c] }
END {
    if (what == "short") {
        print "| N | stage 5 | stage 7 | Triton 64 x 64 | SDPA Flash | SDPA cuDNN |"
        print "|---|---|---|---|---|---|"
        for (seq = 128; seq <= 2048; seq *= seq == 128 ? 4 : 2)
            printf "| %d | %s | %s | %s | %s | %s |\n", seq, four(us, "stage5", 1, seq, "%.1f"), four(us, "stage7", 1, seq, "%.1f"), four(us, "triton_64x64", 1, seq, "%.1f"), four(us, "sdpa_flash", 1, seq, "%.1f"), four(us, "sdpa_cudnn", 1, seq, "%.1f")
    } else if (what == "beside") {
        print "| B, N | stage | TFLOP/s | of SDPA Flash | of SDPA cuDNN |"
        print "|---|---|---|---|---|"
        beside(1, 8192); beside(1, 16384); beside(4, 4096)
    } else if (what ~ /^stage/) {
        print "| B, N | TFLOP/s | of SDPA Flash | of SDPA cuDNN |"
        print "|---|---|---|---|"
        printf "| 1, 8192 | %s |\n| 1, 16384 | %s |\n| 4, 4096 | %s |\n", speed(what, 1, 8192), speed(what, 1, 16384), speed(what, 4, 4096)
        if (what == "stage3") printf "| 1, 8192, scalar.cu | %s |\n", speed("stage3_scalar", 1, 8192)
    } else {
        print "| N = 8192, D = 64 | no mask | causal |"
        print "|---|---|---|"
        printf "| Triton 64 x 64, of SDPA Flash | %.0f%% | %.0f%% |\n", 100 * of("sdpa_flash", "triton_64x64", 0), 100 * of("sdpa_flash", "triton_64x64", 1)
        printf "| explicit fp16 / Triton | %.1fx | %.1fx |\n", of("explicit_fp16", "triton_64x64", 0), of("explicit_fp16", "triton_64x64", 1)
        printf "| eager fp16 / Triton | %.1fx | %.1fx |\n", of("torch_eager_fp16", "triton_64x64", 0), of("torch_eager_fp16", "triton_64x64", 1)
        printf "| SDPA Flash / SDPA cuDNN | %.1fx | %.1fx |\n", of("sdpa_flash", "sdpa_cudnn", 0), of("sdpa_flash", "sdpa_cudnn", 1)
    }
}' "$csv"
