#include "variants.h"

#include <math.h>

#include "util.h"

// Adds exp(score - m) and exp(score - m) v over keys first .. end - 1 to *l and acc.
static void add_keys(float *acc, float *l, const float *q_row, const float *k, const float *v,
                     int64_t d, float scale, float m, int64_t first, int64_t end)
{
    for (int64_t j = first; j < end; j++) {
        float dot = 0;
        for (int64_t x = 0; x < d; x++) dot += q_row[x] * k[j * d + x];
        const float p = expf(dot * scale - m);
        *l += p;
        for (int64_t x = 0; x < d; x++) acc[x] += p * v[j * d + x];
    }
}

static float largest_score(const float *q_row, const float *k, int64_t d, float scale,
                           int64_t first, int64_t end)
{
    float m = -INFINITY;
    for (int64_t j = first; j < end; j++) {
        float dot = 0;
        for (int64_t x = 0; x < d; x++) dot += q_row[x] * k[j * d + x];
        m = fmaxf(m, dot * scale);
    }
    return m;
}

void attention_sliding_window(const float *q, const float *k, const float *v, float *o,
                              const attention_args *args, int64_t window)
{
    const int64_t n = args->seq, d = args->head_dim;
#pragma omp parallel for collapse(2) num_threads(attention_threads(args))
    for (int64_t bh = 0; bh < args->batch * args->heads; bh++)
        for (int64_t i = 0; i < n; i++) {
            const float *q_row = q + (bh * n + i) * d, *k_head = k + bh * n * d;
            const int64_t first = max64(0, i - window + 1);
            float acc[HEAD_DIM_MAX] = {0}, l = 0;
            const float m = largest_score(q_row, k_head, d, args->scale, first, i + 1);
            add_keys(acc, &l, q_row, k_head, v + bh * n * d, d, args->scale, m, first, i + 1);
            for (int64_t x = 0; x < d; x++) o[(bh * n + i) * d + x] = acc[x] / l;
        }
}

void attention_without_rescale(const float *q, const float *k, const float *v, float *o,
                               const attention_args *args, bool rescale_acc, bool rescale_l)
{
    const int64_t n = args->seq, d = args->head_dim;
#pragma omp parallel for collapse(2) num_threads(attention_threads(args))
    for (int64_t bh = 0; bh < args->batch * args->heads; bh++)
        for (int64_t i = 0; i < n; i++) {
            const float *q_row = q + (bh * n + i) * d, *k_head = k + bh * n * d;
            const int64_t keys = args->causal ? i + 1 : n;
            float acc[HEAD_DIM_MAX] = {0}, l = 0, m = -INFINITY;
            // the loop without its rescale
            for (int64_t j = 0; j < keys; j += args->block_k) {
                const int64_t end = min64(keys, j + args->block_k);
                const float m_new = fmaxf(m, largest_score(q_row, k_head, d, args->scale, j, end));
                const float correction = expf(m - m_new);
                if (rescale_l) l *= correction;
                for (int64_t x = 0; rescale_acc && x < d; x++) acc[x] *= correction;
                add_keys(acc, &l, q_row, k_head, v + bh * n * d, d, args->scale, m_new, j, end);
                m = m_new;
            }
            for (int64_t x = 0; x < d; x++) o[(bh * n + i) * d + x] = acc[x] / l;
        }
}
