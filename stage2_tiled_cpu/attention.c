// Stage 2: tiles of queries meet tiles of keys.
//
// Owns: attention_forward as tiled attention. A tile of block_q queries stays put while tiles of
// block_k keys stream past; m, l and acc live per row of the query tile.
// Build and run: make stage2 && ./stage2/run
// Source: Exact, section 4; Forward, part 2.
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
    const int64_t block_q = min64(args->block_q, n), block_k = min64(args->block_k, n);
    const int threads = attention_threads(args);
    attention_counters tally = {0};

    // All that a thread ever holds: one tile of scores, one of output, and two numbers a row.
    float *memory;
    status = tensor_new("the tiles of stage 2", threads, 1, block_q, block_k + d + 2, &memory);
    if (status != ATTENTION_OK) return status;
    const int64_t share = block_q * (block_k + d + 2);

#pragma omp parallel for collapse(2) schedule(dynamic) num_threads(threads) reduction(+ : tally)
    for (int64_t bh = 0; bh < planes; bh++) {
        for (int64_t i = 0; i < n; i += block_q) {
            const int64_t rows = min64(block_q, n - i);
            const float *q_tile = q + (bh * n + i) * d;               // [rows, head_dim]
            float *s = memory + omp_get_thread_num() * share, *p = s; // [block_q, block_k]
            float *acc = s + block_q * block_k;                       // [block_q, head_dim]
            float *m = acc + block_q * d, *l = m + block_q;           // [block_q]
            memset(acc, 0, (size_t)(rows * d) * sizeof *acc);
            for (int64_t r = 0; r < rows; r++) {
                m[r] = -INFINITY;
                l[r] = 0.0f;
            }
            tally.bytes += 2 * rows * d * (int64_t)sizeof(float); // q in, o out

            for (int64_t j = 0; j < n; j += block_k) {
                const int64_t cols = min64(block_k, n - j);
                const float *k_tile = k + (bh * n + j) * d; // [cols, head_dim]
                const float *v_tile = v + (bh * n + j) * d; // [cols, head_dim]

                // 1. scores
                matmul_abt(s, block_k, q_tile, d, k_tile, d, rows, cols, d, args->scale);
                for (int64_t r = 0; args->causal && r < rows; r++)
                    for (int64_t c = max64(0, i + r + 1 - j); c < cols; c++)
                        s[r * block_k + c] = -INFINITY;

                // 2. online softmax
                for (int64_t r = 0; r < rows; r++) {
                    float *s_row = s + r * block_k, *p_row = p + r * block_k; // [cols]
                    float *acc_row = acc + r * d;                             // [head_dim]
                    const float m_new = fmaxf(m[r], row_max(s_row, cols));
                    const float base = m_new == -INFINITY ? 0.0f : m_new;
                    const float correction = expf(m[r] - base);
                    const int64_t row = bh * n + i + r;
                    l[r] = l[r] * correction + row_exp_sum(p_row, s_row, base, cols);
                    for (int64_t x = 0; x < d; x++) acc_row[x] *= correction;
                    trace_rebase(args->trace, row, j, cols, m[r], m_new, correction, l[r]);
                    m[r] = m_new;
                }

                // 3. output, not yet normalised
                matmul_ab(acc, d, p, block_k, v_tile, d, rows, d, cols);

                tally.tiles++;
                tally.flops += 2 * (2 * rows * cols * d);
                tally.bytes += 2 * cols * d * (int64_t)sizeof(float); // k and v in
            }

            // 4. normalise once
            for (int64_t r = 0; r < rows; r++) {
                const float *acc_row = acc + r * d;      // [head_dim]
                float *o_row = o + (bh * n + i + r) * d; // [head_dim]
                const float sum = l[r];
                for (int64_t x = 0; x < d; x++)
                    o_row[x] = dtype_round(sum == 0.0f ? 0.0f : acc_row[x] / sum, args->dtype);
                if (lse) lse[bh * n + i + r] = m[r] + logf(l[r]);
            }
        }
    }
    if (args->counters) *args->counters = tally;
    tensor_free(memory);
    return ATTENTION_OK;
}
