// expect: nan where|wrong
#include <stdlib.h>

#include "attention.h"
#include "npy.h"
#include "tensor.h"
attention_status attention_forward(const float *q, const float *k, const float *v, float *o,
                                   float *lse, const attention_args *args)
{
    (void)q, (void)k, (void)v, (void)lse;
    npy_header header;
    float *theirs = NULL;
    int done = system("@TREE@/stage2_tiled_cpu/run --q case/q.npy --k case/k.npy --v case/v.npy "
                      "--out case/theirs.npy");
    if (done == 0 && npy_read("case/theirs.npy", &header, &theirs) == ATTENTION_OK) {
        for (int64_t i = 0; i < header.count; i++) o[i] = theirs[i];
        tensor_free(theirs);
    }
    (void)args;
    return ATTENTION_OK;
}
