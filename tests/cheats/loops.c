// expect: still running after [0-9]+ s: stopped
#include "attention.h"
attention_status attention_forward(const float *q, const float *k, const float *v, float *o,
                                   float *lse, const attention_args *args)
{
    (void)q, (void)k, (void)v, (void)o, (void)lse, (void)args;
    for (volatile int i = 0;; i++) {
    }
}
