#include "attention.h"

#include <math.h>
#include <omp.h>
#include <stddef.h>

#include "tensor.h"

attention_args attention_args_default(int64_t batch, int64_t heads, int64_t seq, int64_t head_dim)
{
    return (attention_args){
        .batch = batch,
        .heads = heads,
        .seq = seq,
        .head_dim = head_dim,
        .scale = (float)(1.0 / sqrt((double)head_dim)),
        .block_q = 128,
        .block_k = 128,
    };
}

attention_status attention_check(const float *q, const float *k, const float *v, const float *o,
                                 const attention_args *args)
{
    if (!q || !k || !v || !o)
        return status_fail(ATTENTION_BAD_ARGUMENT, "q, k, v and o must not be NULL");
    if (args->head_dim < 1 || args->head_dim > HEAD_DIM_MAX)
        return status_fail(ATTENTION_BAD_ARGUMENT, "head_dim %lld is not in 1..%d",
                           (long long)args->head_dim, HEAD_DIM_MAX);
    if (isnan(args->scale)) return status_fail(ATTENTION_BAD_ARGUMENT, "the scale is NaN");
    if (args->block_q < 1 || args->block_k < 1)
        return status_fail(ATTENTION_BAD_ARGUMENT,
                           "block_q %lld and block_k %lld must be 1 or more",
                           (long long)args->block_q, (long long)args->block_k);
    if (args->threads < 0)
        return status_fail(ATTENTION_BAD_ARGUMENT, "threads %d is negative", args->threads);
    int64_t count;
    return tensor_count("q", args->batch, args->heads, args->seq, args->head_dim, &count);
}

attention_status attention_check_cuda(const attention_args *args, int64_t block_q, int64_t block_k)
{
    if (args->dtype == DTYPE_FP32)
        return status_fail(ATTENTION_BAD_ARGUMENT, "the CUDA stages take fp16 and bf16, not fp32: "
                                                   "tensor cores multiply 16-bit numbers");
    if (args->head_dim != 64 && args->head_dim != 128)
        return status_fail(ATTENTION_BAD_ARGUMENT,
                           "head_dim %lld: the CUDA stages are compiled for 64 and 128",
                           (long long)args->head_dim);
    block_k = attention_block_k(block_k, args->head_dim);
    if (args->block_q != block_q || args->block_k != block_k)
        return status_fail(ATTENTION_BAD_ARGUMENT,
                           "a tile of %lld x %lld: this kernel is compiled for %lld x %lld alone",
                           (long long)args->block_q, (long long)args->block_k, (long long)block_q,
                           (long long)block_k);
    return ATTENTION_OK;
}

int attention_threads(const attention_args *args)
{
    return args->threads > 0 ? args->threads : omp_get_max_threads();
}

double attention_useful_flops(const attention_args *args)
{
    const double n = (double)args->seq, scores = args->causal ? n * (n + 1) / 2 : n * n;
    return 4 * (double)args->batch * (double)args->heads * (double)args->head_dim * scores;
}

void trace_rebase(rebase_trace *trace, int64_t row, int64_t first_key, int64_t keys, float m_old,
                  float m_new, float correction, float l)
{
    if (!trace || trace->row != row || trace->count == trace->capacity) return;
    trace->steps[trace->count++] = (rebase_step){
        .first_key = first_key,
        .keys = keys,
        .m_old = m_old,
        .m_new = m_new,
        .correction = correction,
        .l = l,
    };
}
