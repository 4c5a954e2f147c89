# FLOPs beside traffic: R10 and R11, counted in the loops.
#     ./stage2/run --traffic-csv docs/figures/data/traffic.csv
#     make figures
name = 'traffic'; height = 380
load 'docs/figures/style.gp'
if (!exists("data")) data = 'docs/figures/data/traffic.csv'
if (!readable(data)) exit error sprintf("traffic: cannot read %s", data)
if (rows(data) == 0) { eval empty('no rows in '.data); exit }
set multiplot layout 1,2 title 'The same arithmetic, a quarter of the traffic' textcolor rgb ink
set style data histograms
set style fill solid 0.9 noborder
set boxwidth 0.85
set logscale y 2
set xlabel 'sequence length, 8 heads, D = 64'
set offsets 0, 0, 0, 0
set ylabel 'GFLOP'
set yrange [0.25:64]
plot data using (column('naive_flops') / 1e9):xtic(1) linecolor rgb grey, '' using (column('tiled_flops') / 1e9) linecolor rgb blue, \
     '' using ($0 - 0.17):(column('naive_flops') / 1e9 * 1.2):('whole') every ::3 with labels textcolor rgb grey font ',12', \
     '' using ($0 + 3 + 0.17):(column('naive_flops') / 1e9 * 1.2):('') every ::3 with labels
set ylabel 'MiB across main memory'
set yrange [4:4096]
plot data using (column('naive_bytes') / 2**20):xtic(1) linecolor rgb grey, '' using (column('tiled_bytes') / 2**20) linecolor rgb blue, \
     '' using ($0 - 0.2):(column('naive_bytes') / 2**20 * 1.25):(sprintf('%.0f', column('naive_bytes') / 2**20)) with labels textcolor rgb grey font ',12', \
     '' using ($0 + 0.25):(column('tiled_bytes') / 2**20 * 1.25):(sprintf('%.0f', column('tiled_bytes') / 2**20)) with labels textcolor rgb blue font ',12'
unset multiplot
