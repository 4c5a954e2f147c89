# Running maximum and corrections of R2: 2 of the 31 blocks after the first raise the maximum.
#     ./stage1/run --rescale-csv docs/figures/data/rescale.csv
#     make figures
name = 'rescale'; height = 420
load 'docs/figures/style.gp'
if (!exists("data")) data = 'docs/figures/data/rescale.csv'
if (!readable(data)) exit error sprintf("rescale: cannot read %s", data)
if (rows(data) == 0) { eval empty('no rows in '.data); exit }
set title 'The maximum rises rarely; each rise is one multiply'
set xlabel 'block of 64 logits'
set ylabel 'logit'
set xrange [-1:*]
set offsets 0, 1.5, 2.5, 0
label(r, c) = r > 0 ? sprintf('x %.3f', c) : ''
plot data using 'block':'block_max' with points pointtype 7 pointsize 0.5 linecolor rgb grey, \
     data using 'block':'m_new' with steps linewidth 2.5 linecolor rgb blue, \
     data using 'block':(column('raised') > 0 ? column('m_new') : NaN) with points pointtype 7 pointsize 1.1 linecolor rgb red, \
     data using 'block':(column('m_new')):(label(column('raised'), column('correction'))) with labels right offset -1,0 textcolor rgb red, \
     data using 'block':(column('m_new') + 1.1):(column('block') == 20 ? 'running maximum m' : '') with labels textcolor rgb blue, \
     data using 'block':(column('block_max') - 1.4):(column('block') == 20 ? 'maximum of the block' : '') with labels textcolor rgb grey
