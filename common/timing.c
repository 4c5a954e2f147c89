#include "timing.h"

#include <stdlib.h>
#include <time.h>

double timing_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int timing_measure(timing_result *result, int (*run)(void *context), void *context, int warm_up,
                   int repeats)
{
    enum { REPEATS_MAX = 1000 };
    double seconds[REPEATS_MAX];
    if (repeats > REPEATS_MAX) repeats = REPEATS_MAX;
    *result = (timing_result){0};

    for (int i = -1 - warm_up; i < repeats; i++) {
        const double start = timing_now();
        const int failure = run(context);
        const double elapsed = timing_now() - start;
        if (failure) return failure;
        if (i == -1 - warm_up) result->first = elapsed;
        if (i >= 0) seconds[i] = elapsed;
    }
    qsort(seconds, (size_t)repeats, sizeof *seconds, ascending);
    result->repeats = repeats;
    result->min = seconds[0];
    result->max = seconds[repeats - 1];
    result->median = 0.5 * (seconds[(repeats - 1) / 2] + seconds[repeats / 2]);
    return 0;
}
