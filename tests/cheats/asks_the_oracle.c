// expect: does not build: .*error: oracle.h: No such file
#include <stdlib.h>

#include "attention.h"
#include "oracle.h"
attention_status attention_forward(const float *q, const float *k, const float *v, float *o,
                                   float *lse, const attention_args *args)
{
    double *scratch = malloc((size_t)args->seq * sizeof *scratch);
    for (int64_t r = 0; scratch && r < args->seq; r++) {
        oracle_row row;
        oracle_compute_row(&row, scratch, q, k, v, args, 0, r);
        for (int64_t x = 0; x < args->head_dim; x++) o[r * args->head_dim + x] = (float)row.o[x];
        lse[r] = (float)row.lse;
    }
    free(scratch);
    return ATTENTION_OK;
}
