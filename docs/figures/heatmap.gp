# Draws the attention probabilities P of one head, labelled with the words of the sentence.
#
#     make stage0
#     ./stage0/run --q docs/data/q.npy --k docs/data/k.npy --v docs/data/v.npy --p-out p.npy
#     gnuplot docs/figures/heatmap.gp
#
# Any of these may be set first: gnuplot -e "head=3; out='p3.png'" docs/figures/heatmap.gp
#     p       the probabilities, .npy, float32, [batch, heads, n, n]     p.npy
#     tokens  the words, one a line; '' numbers rows and columns instead docs/data/tokens.txt
#     head    which head, from 0                                         1
#     n       rows and columns                                           lines of tokens
#     title   the line above the picture
#     out     the picture: PNG if it ends in .png, else SVG              docs/figures/heatmap.svg
# Row = query, first word at the top; column = key. Every row of P sums to 1.

if (!exists("p"))      p = 'p.npy'
if (!exists("tokens")) tokens = 'docs/data/tokens.txt'
if (!exists("head"))   head = 1
if (!exists("out"))    out = 'docs/figures/heatmap.svg'
if (!exists("title"))  title = sprintf('Attention probabilities P, head %d', head)

# --- what can be wrong with the input, said in a sentence ---
readable(f) = int(system(sprintf("test -f '%s' && test -r '%s' && echo 1 || echo 0", f, f)))
if (!readable(p)) exit error sprintf("heatmap: cannot read %s; write it with --p-out of stage 0, or set p='...'", p)
if (tokens ne '' && !readable(tokens)) exit error sprintf("heatmap: cannot read %s; set tokens='...', or tokens='' for none", tokens)
if (!exists("n")) {
    if (tokens eq '') { exit error "heatmap: without tokens the size is needed: set n=..." }
    n = int(system(sprintf("grep -c '' '%s'", tokens)))
}
if (tokens ne '' && n != int(system(sprintf("grep -c '' '%s'", tokens)))) exit error sprintf("heatmap: n is %d, but %s has another number of lines", n, tokens)

# A .npy file of version 1.0: 128 bytes of header here, a line of text with type and shape,
# then the numbers. gnuplot reads the numbers; the header is checked so that it may.
header = system(sprintf("head -c 128 '%s' | tr -cd '[:alnum:]<>():,'", p))
if (strstrt(header, 'NUMPY') != 1) exit error sprintf("heatmap: %s is not a .npy file", p)
if (!strstrt(header, '<f4') || !strstrt(header, 'fortranorder:False')) exit error sprintf("heatmap: %s is not float32 in C order", p)
if (!strstrt(header, sprintf(',%d,%d)', n, n))) exit error sprintf("heatmap: %s does not hold [batch, heads, %d, %d], as %s would need", p, n, n, tokens eq '' ? 'n' : tokens)
heads = (int(system(sprintf("wc -c < '%s'", p))) - 128) / (4 * n * n)
if (head < 0 || head >= heads) exit error sprintf("heatmap: head %d is not in %s, which has heads 0 to %d", head, p, heads - 1)

# --- the picture ---
if (strlen(out) > 4 && out[strlen(out)-3:] eq '.png') {
    set terminal pngcairo size 800,720 noenhanced font 'DejaVu Sans,11' background rgb 'white'
} else {
    set terminal svg name 'heatmap' size 800,720 noenhanced font 'DejaVu Sans,Verdana,sans-serif,13' background rgb 'white'
}
set output out

# Viridis: lightness rises evenly with P, also in grey and for the colour-blind.
set palette defined (0 '#440154', 1 '#472d7b', 2 '#3b528b', 3 '#2c728e', 4 '#21918c', \
                     5 '#28ae80', 6 '#5ec962', 7 '#addc30', 8 '#fde725')
set cbrange [0:1]
set cbtics 0.2
set cblabel 'probability'
set xrange [-0.5:n-0.5]
set yrange [n-0.5:-0.5]
set size ratio 1
set label 1 title.(n <= 24 ? ' (in the cells: percent, from 5 up)' : '') at screen 0.5,0.97 center
set lmargin at screen 0.135
set rmargin at screen 0.865
set bmargin at screen 0.06
set tmargin at screen 0.87
set xlabel 'key: the word looked at'
set ylabel 'query: the word that looks'
set border linewidth 0.5
unset xtics
unset key

# Ticks are the words, every one of them, or about 16 numbers where there are no words.
set link x2
set x2tics rotate by 45 left scale 0 ()
set ytics scale 0 ()
step = tokens eq '' ? (n + 15) / 16 : 1
word_at(i) = tokens eq '' ? sprintf('%d', i) : system(sprintf("sed -n %dp '%s'", i + 1, tokens))
do for [i=0:n-1:step] {
    word = word_at(i)
    set x2tics add (word i)
    set ytics add (word i)
}
if (n <= 24) {  # a faint grid, as long as it does not cover what it separates
    do for [i=1:n-1] {
        set arrow from i - 0.5,-0.5 to i - 0.5,n - 0.5 nohead front linewidth 0.5 linecolor rgb '#a0ffffff'
        set arrow from -0.5,i - 0.5 to n - 0.5,i - 0.5 nohead front linewidth 0.5 linecolor rgb '#a0ffffff'
    }
}

# Where a cell is wide enough, its probability in percent, from 5 up; dark on bright cells.
skip = sprintf("binary skip=%d format='%%float32' endian=little", 128 + 4 * n * n * head)
grid = skip.sprintf(" array=(%d,%d)", n, n)
list = skip.sprintf(" record=%d", n * n)
where(x, lo, hi, i) = n <= 24 && x >= lo && x < hi ? int(i) % n : NaN  # NaN: no number
plot p @grid with image pixels notitle, \
     p @list using (where($1, 0.05, 0.5, $0)):(int($0) / n):(sprintf('%.0f', 100 * $1)) \
         with labels notitle textcolor rgb 'white', \
     p @list using (where($1, 0.5, 1.01, $0)):(int($0) / n):(sprintf('%.0f', 100 * $1)) \
         with labels notitle textcolor rgb 'black'
set output
