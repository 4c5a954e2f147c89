// tensor_kernel.h: fused attention on tensor cores, the largest kernel the emulator is tested with.
//
// One block of threads owns a tile of block_q queries of one head; a warp owns whole rows of it.
// Tiles of k and v stream through shared memory; m, l and acc stay in registers.
//   q k v o  [batch x heads, n, d], 16-bit     lse  [batch x heads, n], natural log, or null
//   scale_log2 is the scale times log2(e), so that exp2 takes the place of exp
#ifndef TENSOR_KERNEL_H
#define TENSOR_KERNEL_H

#include "fragment.h"

namespace
{

template <class T, int d, int block_q, int block_k, int warps>
static __global__ void __launch_bounds__(warps * 32)
    attention_kernel(const T *q, const T *k, const T *v, T *o, float *lse, int64_t n, bool causal,
                     float scale_log2)
{
    constexpr int threads = warps * 32, rows = block_q / warps; // a warp owns whole rows
    const int64_t q_tiles = (n + block_q - 1) / block_q;
    const int64_t tile = blockIdx.x, bh = tile / q_tiles;
    const int64_t i_block = tile % q_tiles * block_q; // first query of the block
    const int64_t i = i_block + warp_index() * rows;  // first query of the warp
    const int64_t seen =
        causal && i_block + block_q < n ? i_block + block_q : n; // keys that some query here sees
    const shared_tile<T, block_q, d> q_tile(0);
    const shared_tile<T, block_k, d> k_tile(0), v_tile(k_tile.end());

    left_operand<T, rows, d> q_rows;
    load_tile<threads>(q_tile, q + (bh * n + i_block) * d, n - i_block);
    barrier();
    load_left(q_rows, q_tile, warp_index() * rows);

    auto acc = zeros<rows, d>();
    auto m = all_rows<rows>(-INFINITY), l = all_rows<rows>(0.0f);
    for (int64_t j = 0; j < n; j += block_k) {
        barrier();
        load_tile<threads>(k_tile, k + (bh * n + j) * d, n - j);
        load_tile<threads>(v_tile, v + (bh * n + j) * d, seen - j); // 0 x NaN would be NaN
        barrier();

        // 1. scores
        auto s = product_abt<T, rows, block_k, d>(q_rows, k_tile);
        each_element(s, [&](float x, int, int, int) { return x * scale_log2; });
        if (j + block_k > n || (causal && j + block_k - 1 > i))
            each_element(s, [&](float x, int t, int h, int c) {
                const int64_t key = j + c;
                return key < n && (!causal || key <= i + fragment_row(t, h)) ? x : -INFINITY;
            });

        // 2. online softmax
        const auto tile_max = row_max(s);
        const auto m_new =
            each_row<rows>([&](int t, int h) { return fmaxf(m.r[t][h], tile_max.r[t][h]); });
        const auto base = each_row<rows>(
            [&](int t, int h) { return m_new.r[t][h] == -INFINITY ? 0.0f : m_new.r[t][h]; });
        const auto correction =
            each_row<rows>([&](int t, int h) { return exp2_fast(m.r[t][h] - base.r[t][h]); });
        auto &p = s;
        each_element(p, [&](float x, int t, int h, int) { return exp2_fast(x - base.r[t][h]); });
        const auto sum = row_sum(p);
        l = each_row<rows>(
            [&](int t, int h) { return l.r[t][h] * correction.r[t][h] + sum.r[t][h]; });
        rescale(acc, correction);
        m = m_new;

        // 3. output, not yet normalised
        add_product(acc, p, v_tile);
    }

    // 4. normalise once
    each_element(
        acc, [&](float x, int t, int h, int) { return l.r[t][h] == 0.0f ? 0.0f : x / l.r[t][h]; });
    store(o + (bh * n + i) * d, acc, n - i);
    if (lse)
        store_rows(lse + bh * n + i, each_row<rows>([&](int t, int h) {
                       return m.r[t][h] * 0.69314718f + logf(l.r[t][h]);
                   }),
                   n - i);
}

} // namespace
#endif
