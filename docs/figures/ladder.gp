# What each stage buys: TFLOP/s at N = 8192, B=1 H=16 D=64, fp16, with and without the causal mask.
#     make bench-full CSV=bench/results/h200/bench.csv
#     make figures
name = 'ladder'; height = 500
load 'docs/figures/style.gp'
if (!exists("data")) data = 'bench/results/h200/bench.csv'
if (!readable(data)) exit error sprintf("ladder: cannot read %s; make bench-full writes one", data)
if (!exists("seq")) seq = 8192
steps = 'explicit_fp32 explicit_fp16 stage3_scalar stage3 stage4 stage5 stage6 stage7 triton_64x64 sdpa_flash sdpa_cudnn'
rate(m, c) = real('0'.system(sprintf("awk -F, -v m=%s -v c=%d -v s=%d 'NR == 1 {for (i = 1; i <= NF; i++) n[$i] = i} $n[\"method\"] == m && $n[\"status\"] == \"ok\" && $n[\"head_dim\"] == 64 && $n[\"causal\"] == c && $n[\"batch\"] == 1 && $n[\"seq\"] == s {print $n[\"tflops\"]}' '%s'", m, c, seq, data)))
total = 0
array off[words(steps)]; array on[words(steps)]
do for [i=1:words(steps)] { off[i] = rate(word(steps, i), 0); on[i] = rate(word(steps, i), 1); total = total + off[i] + on[i] }
if (total == 0) { eval empty(sprintf('no rows of N = %d in %s', seq, data)); exit }
gpu = system(sprintf("awk -F, 'NR == 2 {print $3}' '%s'", data))
set title sprintf('The ladder: useful TFLOP/s at N = %d, B=1 H=16 D=64, %s', seq, gpu)
set yrange [words(steps) + 0.6:0.4]
largest = 0
do for [i=1:words(steps)] { largest = off[i] > largest ? off[i] : on[i] > largest ? on[i] : largest }
set xrange [0:1.08 * largest]
set xlabel 'TFLOP/s'
set ytics ()
do for [i=1:words(steps)] { set ytics add (word(steps, i) i) }
unset grid
set grid xtics linecolor rgb thin linewidth 0.5
set lmargin 16
ours(m) = strstrt(m, 'stage') == 1
set style fill solid 0.9 noborder
plot for [i=1:words(steps)] '+' using (off[i]/2):(i - 0.2):(0):(off[i]):(i - 0.38):(i - 0.02) every ::0::0 with boxxyerror linecolor rgb (ours(word(steps, i)) ? blue : grey), \
     for [i=1:words(steps)] '+' using (on[i]/2):(i + 0.2):(0):(on[i]):(i + 0.02):(i + 0.38) every ::0::0 with boxxyerror linecolor rgb (ours(word(steps, i)) ? sky : thin), \
     for [i=1:words(steps)] '+' using (off[i]):(i - 0.2):(sprintf(' %.0f', off[i]).(i == 1 ? '  no mask' : '')) every ::0::0 with labels left textcolor rgb ink font ',12', \
     for [i=1:words(steps)] '+' using (on[i]):(i + 0.2):(sprintf(' %.0f', on[i]).(i == 1 ? '  causal' : '')) every ::0::0 with labels left textcolor rgb ink font ',12'
