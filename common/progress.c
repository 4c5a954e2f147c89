#include "progress.h"

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "timing.h"

static const char *current;
static double started, shown;
static bool visible;

void progress(const char *label, int done, int total)
{
    const double now = timing_now();
    if (label != current) {
        progress_done();
        current = label;
        started = now;
    }
    if (!isatty(STDERR_FILENO) || now - started < 1.0 || now - shown < 0.1) return;
    fprintf(stderr, "\r\033[K%s  %d/%d", label, done, total);
    fflush(stderr);
    shown = now;
    visible = true;
}

void progress_done(void)
{
    if (visible) fputs("\r\033[K", stderr);
    visible = false;
    current = NULL;
}
