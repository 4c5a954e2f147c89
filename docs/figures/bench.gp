# Latency, throughput or memory of all methods against N, from a CSV of bench/.
#     make bench-full CSV=bench/results/h200/bench.csv
#     make figures
# what: 'latency', 'throughput' or 'memory'; head_dim, causal, batch choose the rows.
if (!exists("what"))     what = 'latency'
if (!exists("head_dim")) head_dim = 64
if (!exists("causal"))   causal = 0
if (!exists("batch"))    batch = 1
name = what; width = 800; height = 520
load 'docs/figures/style.gp'
if (!exists("data")) data = 'bench/results/h200/bench.csv'
if (!readable(data)) exit error sprintf("bench: cannot read %s; make bench writes one", data)
if (rows(data) == 0) { eval empty('no rows in '.data); exit }
shape = sprintf('B=%d H=16 D=%d%s', batch, head_dim, causal ? ' causal' : '')
gpu = system(sprintf("awk -F, 'NR == 2 {print $3}' '%s'", data))
set logscale x 2
set xlabel 'sequence length N'
set xrange [96:16384 * 7]
set xtics (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
if (what eq 'latency') {
    set title sprintf('Time of one call, %s, %s', shape, gpu)
    set logscale y
    set yrange [*:1000] # room for the labels
    set ylabel 'ms'
    set format y '%g'
}
if (what eq 'throughput') {
    set title sprintf('Share of the arithmetic peak, %s, %s', shape, gpu)
    set ylabel '% of peak'
    set yrange [0:*]
}
if (what eq 'memory') {
    set title sprintf('Device memory beyond Q, K and V, %s, %s', shape, gpu)
    set logscale y 2
    set yrange [*:2**18]
    set ylabel 'MiB'
    set format y '%g'
}
# What is drawn of one method: lines of N and a value. A logarithm has no place for zero, so what is
# not above it is left out. The time is the CUDA graph's where there is one. Rows of a resumed sweep
# come in any order.
series(m) = sprintf("awk -F, -v m=%s -v d=%d -v c=%d -v b=%d -v w=%s 'NR == 1 {for (i = 1; i <= NF; i++) n[$i] = i; print \"seq,value\"} $n[\"method\"] == m && $n[\"status\"] == \"ok\" && $n[\"head_dim\"] == d && $n[\"causal\"] == c && $n[\"batch\"] == b {y = w == \"latency\" ? ($n[\"ms_graph\"] != \"\" ? $n[\"ms_graph\"] : $n[\"ms_median\"]) : w == \"throughput\" ? 100 * $n[\"share_of_peak\"] : $n[\"peak_extra_with_o_mib\"]; if (y > 0) print $n[\"seq\"] \",\" y}' '%s' | LC_ALL=C sort -t, -k1,1n", m, head_dim, causal, batch, what, data)
methods = 'explicit_fp32 explicit_fp16 tiled_launches stage3_scalar stage3 stage4 stage5 stage6 stage7 triton_64x64 sdpa_flash sdpa_cudnn'
colours = sprintf('%s %s %s %s %s %s %s %s %s %s %s %s', grey, grey, pink, grey, blue, orange, violet, red, red, ink, green, sky)
widths = '1.2 2 2 1.6 2 2 2 1.6 3 1.5 2 2'
# Labels at the right, kept apart where lines end close to each other.
array at[words(methods)]; array last[words(methods)]
do for [i=1:words(methods)] {
    m = word(methods, i)
    at[i] = NaN; last[i] = NaN
    ends = system(series(m)." | tail -n 1 | tr ',' ' '")
    if (words(ends) == 2 && word(ends, 1) ne "seq") { last[i] = real(word(ends, 1)); at[i] = real(word(ends, 2)) }
}
log_scale = what ne 'throughput'
gap = what eq 'latency' ? 1.75 : what eq 'memory' ? 2.2 : 2.4
# From the lowest up, each label at least a gap above the one before it.
array place[words(methods)]; array taken[words(methods)]
do for [i=1:words(methods)] { taken[i] = 0; place[i] = NaN }
below = log_scale ? 1e-9 : -1e9
do for [k=1:words(methods)] {
    best = 0
    do for [i=1:words(methods)] {
        if (!taken[i] && at[i] == at[i] && last[i] >= 4096 && (best == 0 || at[i] < at[best])) { best = i }
    }
    if (best > 0) {
        taken[best] = 1
        lowest = log_scale ? below * gap : below + gap
        place[best] = at[best] > lowest ? at[best] : lowest
        below = place[best]
    }
}
do for [i=1:words(methods)] {
    if (place[i] == place[i]) {
        set label 100 + i word(methods, i) at first last[i] * 1.15, place[i] left textcolor rgb word(colours, i) font ',12'
    }
    if (at[i] == at[i] && !(place[i] == place[i])) {
        set label 100 + i word(methods, i) at first last[i] * 0.9, (log_scale ? at[i] * 1.35 : at[i] + 3) right textcolor rgb word(colours, i) font ',12'
    }
}
# A method without rows would end the plot: only those with some are drawn.
drawn = ''
do for [i=1:words(methods)] { if (at[i] == at[i]) { drawn = drawn.sprintf(' %d', i) } }
if (words(drawn) == 0) { eval empty(sprintf('no rows of %s', shape)); exit }
plot for [w in drawn] '< '.series(word(methods, int(w))) using 1:2 \
     with linespoints pointtype 7 pointsize 0.45 linewidth real(word(widths, int(w))) linecolor rgb word(colours, int(w))
