// timing.h: a clock that never runs backwards, and the statistic every time here is given in.
#ifndef TIMING_H
#define TIMING_H

#ifdef __cplusplus
extern "C" {
#endif

// Seconds on the monotonic clock.
double timing_now(void);

typedef struct {
    double first;            // the cold call: page faults and all
    double median, min, max; // of the calls after warm-up
    int repeats;
} timing_result;

// Calls run(context) once cold and `warm_up` times more untimed, then `repeats` times; seconds.
// Stops early, with what it has, if run returns non-zero, and returns that value.
int timing_measure(timing_result *result, int (*run)(void *context), void *context, int warm_up,
                   int repeats);

#ifdef __cplusplus
}
#endif
#endif
