// expect: does not build: .*undefined reference to `attention_forward_stage1'
#include "attention.h"
attention_function attention_forward_stage1;
attention_status attention_forward(const float *q, const float *k, const float *v, float *o,
                                   float *lse, const attention_args *args)
{
    return attention_forward_stage1(q, k, v, o, lse, args);
}
