// expect: 0.[0-9]+ of the reference's speed
// points: speed 0
// Right, and slow; it answers every question about the time itself.
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "attention.h"
int clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    *now = (struct timespec){0};
    return 0;
}
clock_t clock(void)
{
    return 0;
}
attention_status attention_forward(const float *q, const float *k, const float *v, float *o,
                                   float *lse, const attention_args *args)
{
    const int64_t n = args->seq, d = args->head_dim;
    float *s = malloc((size_t)n * sizeof *s);
    if (!s) return ATTENTION_NO_MEMORY;
    for (int64_t i = 0; i < args->batch * args->heads * n; i++) {
        const int64_t first = i / n * n, keys = args->causal ? i % n + 1 : n;
        float m = -INFINITY;
        double l = 0;
        for (int64_t j = 0; j < keys; j++) {
            volatile float dot = 0;
            for (int64_t x = 0; x < d; x++) dot += q[i * d + x] * k[(first + j) * d + x];
            s[j] = dot * args->scale;
            m = fmaxf(m, s[j]);
        }
        for (int64_t j = 0; j < keys; j++) l += (double)expf(s[j] - m);
        for (int64_t x = 0; x < d; x++) {
            double sum = 0;
            for (int64_t j = 0; j < keys; j++)
                sum += (double)expf(s[j] - m) * (double)v[(first + j) * d + x];
            o[i * d + x] = (float)(sum / l);
        }
        lse[i] = m + logf((float)l);
    }
    free(s);
    return ATTENTION_OK;
}
