// expect: o.npy is not a file|ended without writing
// A child that outlives the program, and a link where the output should be.
#include <stdlib.h>
#include <unistd.h>

#include "attention.h"
attention_status attention_forward(const float *q, const float *k, const float *v, float *o,
                                   float *lse, const attention_args *args)
{
    (void)q, (void)k, (void)v, (void)o, (void)lse, (void)args;
    if (symlink("/etc/passwd", "case/o.npy") == 0 && fork() == 0) {
        setsid();
        sleep(600);
    }
    _exit(0);
}
