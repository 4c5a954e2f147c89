// Stage 3, first step: the loops of stage 2 inside one kernel, on 16-bit tensors in fp32
// arithmetic.
//
// Owns: attention_forward and attention_forward_device. The loop over heads and query tiles became
// blockIdx and the loop over the rows of a tile became threads, so that m, l and acc are variables
// of a thread; the tiles of q, k, v and s became shared memory.
// Build and run: make stage3 && ./stage3/run --kernel scalar
// Source: Exact, section 4; Forward, part 2.
#include "attention.h"

#include <math.h>

#include "gpu.h"
#include "util.h"

namespace
{

constexpr int block_q = 64, block_k = 32;

template <class T, int d>
__global__ void __launch_bounds__(block_q)
    attention_kernel(const T *q, const T *k, const T *v, T *o, float *lse, int64_t n, bool causal,
                     float scale, recorder record)
{
    const float scale_log2 = scale * 1.44269504f; // exp2 takes the place of exp
    const int64_t q_tiles = (n - 1) / block_q + 1;
    const int64_t bh = blockIdx.x / q_tiles, i = blockIdx.x % q_tiles * block_q;
    const int64_t rows = min64(block_q, n - i);
    const int64_t seen = causal && i + block_q < n ? i + block_q : n; // by some row of the tile
    const int r = static_cast<int>(threadIdx.x);                      // this thread's row
    const shared_tile<T, block_q, d> q_tile(0);
    const shared_tile<T, block_k, d> k_tile(q_tile.end()), v_tile(k_tile.end());
    const shared_tile<float, block_q, block_k> s(v_tile.end()), p = s;
    float acc[d] = {}, m = -INFINITY, l = 0.0f;
    load_tile<block_q>(q_tile, q + (bh * n + i) * d, rows);

    for (int64_t j = 0; j < n; j += block_k) {
        const int64_t cols = min64(block_k, n - j);
        barrier(); // the tiles of the last round have been read
        load_tile<block_q>(k_tile, k + (bh * n + j) * d, cols);
        load_tile<block_q>(v_tile, v + (bh * n + j) * d, seen - j); // else 0 x NaN could be
        barrier();                                                  // the new ones are there

        // 1. scores
        for (int c = 0; c < block_k; c++) {
            const bool visible = c < cols && (!causal || j + c <= i + r);
            s.set(r, c, visible ? dot(q_tile, r, k_tile, c) * scale_log2 : -INFINITY);
        }

        // 2. online softmax
        const float m_new = fmaxf(m, row_max(s, r));
        const float base = m_new == -INFINITY ? 0.0f : m_new;
        const float correction = exp2f(m - base);
        l = l * correction + row_exp2_sum(p, s, r, base);
        UNROLL for (int x = 0; x < d; x++) acc[x] *= correction;
        record.rebase(bh, i + r, j, cols, m, m_new, correction, l);
        m = m_new;

        // 3. output, not yet normalised
        for (int c = 0; c < block_k; c++) add_row(acc, p.get(r, c), v_tile, c);

        record.tile(2 * (2 * block_q * block_k * d), 2 * cols * d * static_cast<int>(sizeof(T)));
    }

    // 4. normalise once
    if (r >= rows) return;
    UNROLL for (int x = 0; x < d; x++) acc[x] = l == 0.0f ? 0.0f : acc[x] / l;
    store_row(o + (bh * n + i + r) * d, acc);
    if (lse) lse[bh * n + i + r] = m * 0.69314718f + logf(l);
}

template <class T, int d> attention_status launch(const gpu_call &call)
{
    constexpr uint32_t shared_bytes = shared_tile<T, block_q, d>::bytes +
                                      2 * shared_tile<T, block_k, d>::bytes +
                                      shared_tile<float, block_q, block_k>::bytes;
    return gpu_launch(attention_kernel<T, d>, block_q, block_q, shared_bytes, call);
}

// What attention_forward and attention_forward_device launch (common/gpu.h).
const gpu_kernels kernels = {block_q,           block_k,          launch<fp16, 64>,
                             launch<fp16, 128>, launch<bf16, 64>, launch<bf16, 128>};

} // namespace
