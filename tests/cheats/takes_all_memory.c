// expect: the submission ran out of memory|crashed|exit code
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
attention_status attention_forward(const float *q, const float *k, const float *v, float *o,
                                   float *lse, const attention_args *args)
{
    (void)q, (void)k, (void)v, (void)o, (void)lse, (void)args;
    for (;;) {
        char *block = malloc(1 << 28);
        if (!block) exit(9);
        memset(block, 1, 1 << 28);
    }
}
