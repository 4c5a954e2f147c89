// Stage 0: attention with every intermediate matrix in memory.
//
// Owns: attention_forward as the textbook writes it: S = Q K^T / sqrt(d), P = softmax(S), O = P V,
// each step finished for a whole head, and its N x N result stored, before the next begins.
// Build and run: make stage0 && ./stage0/run
// Source: Exact, section 1; Forward, part 1.
#include "attention.h"

#include <math.h>
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
    const int64_t block_q = min64(args->block_q, n);
    const int threads = attention_threads(args);
    attention_counters tally = {0};

    // The two matrices this stage exists to show, one of each for every head.
    float *memory, *sums;
    status = tensor_new("S and P", 2, planes, n, n, &memory);
    if (status != ATTENTION_OK) return status;
    status = tensor_new("l", 1, 1, planes, n, &sums);
    if (status != ATTENTION_OK) return tensor_free(memory), status;

    for (int64_t bh = 0; bh < planes; bh++) {
        float *s = memory + bh * n * n, *p = s + planes * n * n;        // [seq, seq]
        float *acc = o + bh * n * d, *l = sums + bh * n;                // [seq, head_dim], [seq]
        const float *k_head = k + bh * n * d, *v_head = v + bh * n * d; // [seq, head_dim]

        // 1. scores
#pragma omp parallel for num_threads(threads)
        for (int64_t i = 0; i < n; i += block_q) {
            const int64_t rows = min64(block_q, n - i);
            matmul_abt(s + i * n, n, q + (bh * n + i) * d, d, k_head, d, rows, n, d, args->scale);
            for (int64_t r = i; args->causal && r < i + rows; r++)
                for (int64_t c = r + 1; c < n; c++) s[r * n + c] = -INFINITY;
        }

        // 2. softmax, whose division waits for step 4
#pragma omp parallel for num_threads(threads)
        for (int64_t i = 0; i < n; i++) {
            const float m = row_max(s + i * n, n);
            const float base = m == -INFINITY ? 0.0f : m;
            l[i] = row_exp_sum(p + i * n, s + i * n, base, n);
            trace_rebase(args->trace, bh * n + i, 0, n, -INFINITY, m, 0.0f, l[i]);
            if (lse) lse[bh * n + i] = m + logf(l[i]);
        }

        // 3. output, not yet normalised
#pragma omp parallel for num_threads(threads)
        for (int64_t i = 0; i < n; i += block_q) {
            const int64_t rows = min64(block_q, n - i);
            memset(acc + i * d, 0, (size_t)(rows * d) * sizeof *acc);
            matmul_ab(acc + i * d, d, p + i * n, n, v_head, d, rows, d, n);
        }

        // 4. normalise once
#pragma omp parallel for num_threads(threads)
        for (int64_t i = 0; i < n; i++) {
            float *o_row = o + (bh * n + i) * d; // [head_dim]
            for (int64_t x = 0; x < d; x++)
                o_row[x] = dtype_round(l[i] == 0.0f ? 0.0f : o_row[x] / l[i], args->dtype);
            for (int64_t j = 0; args->p_out && j < n; j++)
                args->p_out[(bh * n + i) * n + j] = l[i] == 0.0f ? 0.0f : p[i * n + j] / l[i];
        }

        tally.flops += 2 * (2 * n * n * d);
        tally.bytes += 4 * n * d * (int64_t)sizeof(float);       // q, k, v in, o out
        tally.score_bytes += 4 * n * n * (int64_t)sizeof(float); // s out, s in, p out, p in
    }
    if (args->counters) *args->counters = tally;
    tensor_free(memory);
    tensor_free(sums);
    return ATTENTION_OK;
}
