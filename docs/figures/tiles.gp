# The causal tile map: N = 1024, stage 4's own bound.
#     ./stage4/run --tiles-csv docs/figures/data/tiles.csv
#     make figures
name = 'tiles'; width = 640; height = 560
load 'docs/figures/style.gp'
if (!exists("data")) data = 'docs/figures/data/tiles.csv'
if (!readable(data)) exit error sprintf("tiles: cannot read %s", data)
if (rows(data) == 0) { eval empty('no rows in '.data); exit }
set title 'Tiles under causality: full, masked, never visited'
set xlabel 'keys'
set ylabel 'queries'
stats data using 'first_key' nooutput
set xrange [0:STATS_max + 64]
stats data using 'first_query' nooutput
set yrange [STATS_max + 128:0]
set xtics 128
set ytics 128
unset grid
set size ratio 1
colour(k) = k eq 'full' ? (dark ? 0x56b4e9 : 0x0072b2) : k eq 'masked' ? 0xe69f00 : (dark ? 0x21262d : 0xeaeef2)
set label 2 'full: no mask' at first 220,700 center textcolor rgb paper front
set label 3 'on the diagonal: masked' at first 500,560 center rotate by -45 textcolor rgb '#000000' front
set label 4 'in the future: skipped' at first 760,250 center textcolor rgb ink front
plot data using (column('first_key')):(column('first_query')):(column('first_key')):(column('first_key') + column('keys')): \
         (column('first_query')):(column('first_query') + column('queries')):(colour(strcol('kind'))) \
         with boxxyerror fillstyle solid 0.95 border rgb paper linecolor rgb variable
