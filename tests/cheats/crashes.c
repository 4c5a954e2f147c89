// expect: crashed: Segmentation fault
#include "attention.h"
attention_status attention_forward(const float *q, const float *k, const float *v, float *o,
                                   float *lse, const attention_args *args)
{
    (void)q, (void)k, (void)v, (void)o, (void)lse, (void)args;
    *(volatile int *)8 = 1;
    return ATTENTION_OK;
}
