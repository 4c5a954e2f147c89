# The rebase as stacked terms: l after each block of R1, what came from before in one piece.
#     ./stage1/run --logits "0.4,0.9,0.5,1.8,0.6,0.7" --block 2 --trace-csv docs/figures/data/rebase.csv
#     make figures
name = 'rebase'; height = 400
load 'docs/figures/style.gp'
if (!exists("data")) data = 'docs/figures/data/rebase.csv'
if (!readable(data)) exit error sprintf("rebase: cannot read %s", data)
if (rows(data) == 0) { eval empty('no rows in '.data); exit }
set title 'One multiply rebases everything summed so far'
set ylabel 'running sum l'
set yrange [0:*]
set xtics ()
stats data using 'block' nooutput
last = STATS_max
set xrange [-0.6:last + 0.6]
do for [b=0:int(last)] { set xtics add (sprintf('after block %d', b) b) }
half = 0.38
# The height below a term: what was rebased, and the terms of its block before it.
base = 0.0; block = -1
below(b, l, t) = (b != block ? (block = b, base = l) : 0, base = base + t, base - t)
plot data using (column('block')):(0):(column('block') - half):(column('block') + half):(0):(column('l_rebased')) \
         with boxxyerror fillstyle solid 0.9 noborder linecolor rgb grey, \
     data using (column('block')):(y = below(column('block'), column('l_rebased'), column('term')), y): \
         (column('block') - half):(column('block') + half):(y):(y + column('term')) \
         with boxxyerror fillstyle solid 0.9 border rgb paper linecolor rgb blue, \
     data using (column('block')):(column('l_rebased') / 2): \
         (column('l_rebased') > 0 && int(column('index')) % 2 == 0 ? sprintf('%.4f x %.4f', column('l_before'), column('correction')) : '') \
         with labels textcolor rgb paper font ',12', \
     data using (column('block')):(column('l_after') + 0.09): \
         (int(column('index')) % 2 ? sprintf('l = %.4f', column('l_after')) : '') with labels textcolor rgb ink
