# style.gp: what the figures share. Set before: name (of the file), theme ('light' or 'dark'),
# format ('svg' or 'png'), and optionally width and height. `make figures` sets them.
if (!exists("theme"))  theme = 'light'
if (!exists("format")) format = 'svg'
if (!exists("width"))  width = 800
if (!exists("height")) height = 420
dark = theme eq 'dark'
ink  = dark ? '#e6edf3' : '#24292f'
thin = dark ? '#30363d' : '#c4ccd4'
paper = dark ? '#0d1117' : '#ffffff'
file = 'docs/figures/'.name.(dark ? '-dark' : '').'.'.format
# The Okabe-Ito colours, told apart with any kind of colour blindness.
blue = dark ? '#56b4e9' : '#0072b2'; orange = '#e69f00'; green = '#009e73'; red = '#d55e00'
violet = dark ? '#b794f4' : '#5e3c99'
pink = '#cc79a7'; grey = dark ? '#8b949e' : '#6e7781'; sky = dark ? '#a5d6ff' : '#56b4e9'
if (format eq 'png') {
    set terminal pngcairo size 2*width,2*height fontscale 2 linewidth 2 noenhanced font 'DejaVu Sans,12' background rgb paper
} else {
    set terminal svg name name size width,height noenhanced font 'DejaVu Sans,Verdana,sans-serif,14' background rgb paper
}
set output file
set border 3 linecolor rgb ink linewidth 0.7
set tics nomirror textcolor rgb ink
set title textcolor rgb ink
set xlabel textcolor rgb ink
set ylabel textcolor rgb ink
set key off
set grid ytics back linetype 1 linecolor rgb thin linewidth 0.6
set datafile separator ','
set datafile columnheaders
readable(f) = int(system(sprintf("test -r '%s' && echo 1 || echo 0", f)))
rows(f) = int(system(sprintf("tail -n +2 '%s' | grep -c . || true", f)))
# A sentence in the place of a picture that there is no data for.
empty(text) = sprintf("set label 1 '%s' at graph 0.5,0.5 center textcolor rgb '%s'; set xrange [0:1]; set yrange [0:1]; unset tics; unset border; plot NaN notitle", text, ink)
