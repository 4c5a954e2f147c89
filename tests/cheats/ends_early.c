// expect: ended without writing o.npy \(exit code 0\)
#include <stdlib.h>

#include "attention.h"
attention_status attention_forward(const float *q, const float *k, const float *v, float *o,
                                   float *lse, const attention_args *args)
{
    (void)q, (void)k, (void)v, (void)o, (void)lse, (void)args;
    exit(0);
}
