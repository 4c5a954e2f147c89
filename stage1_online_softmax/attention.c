// Stage 1: one query row streams over blocks of keys.
//
// Owns: attention_forward with the rebase: a running maximum m and a running sum l stand in for
// the row of scores, and one multiply corrects all they hold when a block raises the maximum.
// Build and run: make stage1 && ./stage1/run
// Source: Exact, section 2; Milakov and Gimelshein 2018.
#include "attention.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "half.h"
#include "matmul.h"
#include "tensor.h"
#include "util.h"

attention_status attention_forward(const float *q, const float *k, const float *v, float *o,
                                   float *lse, const attention_args *args)
{
    attention_status status = attention_check(q, k, v, o, args);
    if (status != ATTENTION_OK) return status;
    const int64_t n = args->seq, d = args->head_dim, planes = args->batch * args->heads;
    const int64_t block_k = min64(args->block_k, n);
    const int threads = attention_threads(args);
    attention_counters tally = {0};

    // All that a thread ever holds: one block of scores and one row of output.
    float *memory;
    const int64_t share = block_k + d;
    status = tensor_new("the rows of stage 1", threads, 1, 1, share, &memory);
    if (status != ATTENTION_OK) return status;

#pragma omp parallel for collapse(2) schedule(dynamic) num_threads(threads) reduction(+ : tally)
    for (int64_t bh = 0; bh < planes; bh++) {
        for (int64_t i = 0; i < n; i++) {
            const float *q_row = q + (bh * n + i) * d;                // [head_dim]
            float *s = memory + omp_get_thread_num() * share, *p = s; // [block_k]
            float *acc = s + block_k;                                 // [head_dim]
            float m = -INFINITY, l = 0.0f;
            memset(acc, 0, (size_t)d * sizeof *acc);
            tally.bytes += 2 * d * (int64_t)sizeof(float); // q in, o out

            for (int64_t j = 0; j < n; j += block_k) {
                const int64_t cols = min64(block_k, n - j);
                const float *k_block = k + (bh * n + j) * d; // [cols, head_dim]
                const float *v_block = v + (bh * n + j) * d; // [cols, head_dim]

                // 1. scores
                matmul_abt(s, block_k, q_row, d, k_block, d, 1, cols, d, args->scale);
                for (int64_t c = max64(0, i + 1 - j); args->causal && c < cols; c++)
                    s[c] = -INFINITY;

                // 2. online softmax
                const float m_new = fmaxf(m, row_max(s, cols));
                const float base = m_new == -INFINITY ? 0.0f : m_new;
                const float correction = expf(m - base);
                l = l * correction + row_exp_sum(p, s, base, cols);
                for (int64_t x = 0; x < d; x++) acc[x] *= correction;
                trace_rebase(args->trace, bh * n + i, j, cols, m, m_new, correction, l);
                m = m_new;

                // 3. output, not yet normalised
                matmul_ab(acc, d, p, block_k, v_block, d, 1, d, cols);

                tally.tiles++;
                tally.flops += 2 * (2 * cols * d);
                tally.bytes += 2 * cols * d * (int64_t)sizeof(float); // k and v in
            }

            // 4. normalise once
            float *o_row = o + (bh * n + i) * d; // [head_dim]
            for (int64_t x = 0; x < d; x++)
                o_row[x] = dtype_round(l == 0.0f ? 0.0f : acc[x] / l, args->dtype);
            if (lse) lse[bh * n + i] = m + logf(l);
        }
    }
    if (args->counters) *args->counters = tally;
    tensor_free(memory);
    return ATTENTION_OK;
}
