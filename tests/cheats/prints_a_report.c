// expect: ended without writing o.npy \(exit code 0\)
#include <stdio.h>
#include <stdlib.h>

#include "attention.h"
attention_status attention_forward(const float *q, const float *k, const float *v, float *o,
                                   float *lse, const attention_args *args)
{
    (void)q, (void)k, (void)v, (void)o, (void)lse, (void)args;
    FILE *report = fopen("results.json", "we");
    if (report) {
        fputs("{\"score\": 100}", report);
        fclose(report);
    }
    puts("{\"exit\": 0, \"signal\": null, \"timeout\": false}");
    puts("stage 2: 100 of 100 points\n1 passed, 0 failed");
    exit(0);
}
