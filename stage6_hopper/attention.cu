// Stage 6: stage 5 on the engines of compute capability 9.0: one that copies tiles, one that
// multiplies them for four warps at a time, and warps with roles to keep both at work.
//
// Owns: attention_forward and attention_forward_device. The first warpgroup of a block is the
// producer: one thread has q copied, and k and v into rings of two tiles. The others are consumers,
// block_q queries each, and multiply straight from shared memory (common/warpgroup.h).
// Build and run: make stage6 && ./stage6/run
// Source: Shah et al. 2024 (FlashAttention-3), section 3.1; docs/performance.md.
#include "attention.h"

#include <math.h>

#include "gpu_hopper.h"

namespace
{

constexpr int block_q = 64, block_k = 128, stages = 2;

// p is 2^weight_bits times the weight, and so are its sum l and acc: the end divides it out. fp16
// ends at 2^-24 and loses bits from 2^-14 down, so a weight that is small beside the largest, which
// is 1, would lose them too; there is room above 1 for 2^15. bf16 has the range of a float.
template <class T> constexpr float weight_bits = 0.0f;
template <> constexpr float weight_bits<fp16> = 15.0f;

template <class T, int d, int consumers>
__global__ void __launch_bounds__((1 + consumers) * 128, 1)
    attention_kernel(const __grid_constant__ tensor_map q, const __grid_constant__ tensor_map k,
                     const __grid_constant__ tensor_map v, T *o, float *lse, int64_t seq,
                     bool causal, float scale, recorder record)
{
    const float scale_log2 = scale * 1.44269504f;           // exp2 takes the place of exp
    constexpr int rows = 16, queries = consumers * block_q; // of a warp, of the block
    const int n = static_cast<int>(seq);                    // half the registers of 64 bits
    const int q_tiles = (n - 1) / queries + 1, planes = static_cast<int>(gridDim.x) / q_tiles;
    // The longest tiles of queries first, as in stage 4, but of 16 heads at a time: blocks side by
    // side then share their k and v in the L2.
    const int block = static_cast<int>(blockIdx.x), group = block / (16 * q_tiles) * 16;
    const int heads = planes - group < 16 ? planes - group : 16, in_group = block - group * q_tiles;
    const int i_block = (q_tiles - 1 - in_group / heads) * queries, bh = group + in_group % heads;
    const auto end = [&](int i) { return causal && i < n ? i : n; }; // of the keys seen before i
    const ring<T, queries, d, 1> q_ring(0);
    const ring<T, block_k, d, stages> k_ring(q_ring.end()), v_ring(k_ring.end());
    turn<1> q_at;
    turn<stages> at;
    open_rings(q_ring, k_ring, v_ring, consumers);

    const int warpgroup = warpgroup_index();
    if (warpgroup == 0) { // the producer
        give_registers<24>();
        if (threadIdx.x > 0) return;
        q_ring.fill(q_at, q, i_block, bh);
        for (int j = 0; j < end(i_block + queries); j += block_k, at.next()) {
            k_ring.fill(at, k, j, bh);
            v_ring.fill(at, v, j, bh);
            const int cols = n - j < block_k ? n - j : block_k;
            record.bytes(2 * cols * d * static_cast<int>(sizeof(T)));
        }
        return;
    }
    take_registers<240>();
    const int first = (warpgroup - 1) * block_q;             // the warpgroup's row of q_tile
    const int i = i_block + first + warp_index() % 4 * rows; // the warp's first query
    const int seen = end(i_block + first + block_q);         // by the warpgroup
    const auto q_tile = q_ring.wait(q_at);

    accumulator<rows, block_k> s;
    left_operand<T, rows, block_k> p_left;
    auto acc = zeros<rows, d>();
    auto m = all_rows<rows>(-INFINITY), l = all_rows<rows>(0.0f); // l: of this lane's columns
    for (int j = 0; j < seen; j += block_k, at.next()) {
        const int cols = n - j < block_k ? n - j : block_k;

        // 1. scores
        start_product_abt(s, q_tile, first, k_ring.wait(at));
        wait_for_product<0>(s);
        k_ring.release(at);
        // A full tile that every row of the warp sees needs no mask.
        const bool plain = scale_log2 > 0.0f && j + block_k <= end(i + 1);
        const float factor = plain ? scale_log2 : 1.0f; // what exp2 still has to multiply by
        if (!plain)
            each_element(s, [&](float x, int t, int h, int c) {
                return c < end(i + fragment_row(t, h) + 1) - j ? __fmul_rn(x, scale_log2)
                                                               : -INFINITY;
            });

        // 2. online softmax
        const auto s_max = row_max(s);
        const auto tile_max =
            each_row<rows>([&](int t, int h) { return __fmul_ru(s_max.r[t][h], factor); });
        const auto m_new =
            each_row<rows>([&](int t, int h) { return fmaxf(m.r[t][h], tile_max.r[t][h]); });
        const auto base = each_row<rows>(
            [&](int t, int h) { return m_new.r[t][h] == -INFINITY ? 0.0f : m_new.r[t][h]; });
        const auto correction =
            each_row<rows>([&](int t, int h) { return exp2_fast(m.r[t][h] - base.r[t][h]); });
        auto &p = s;
        each_element(p, [&](float x, int t, int h, int) { // up, or p could pass fp16's end
            return exp2_fast(fmaf(x, factor, -__fsub_ru(base.r[t][h], weight_bits<T>)));
        });
        const auto sum = lane_sum(p);
        l = each_row<rows>(
            [&](int t, int h) { return l.r[t][h] * correction.r[t][h] + sum.r[t][h]; });
        rescale(acc, correction);
        if (record.listens)
            record_rows(record, bh, i, j, cols, m, m_new, correction,
                        times(across_lanes(l), exp2f(-weight_bits<T>)));
        m = m_new;

        // 3. output, not yet normalised
        round_left(p_left, p);
        start_product(acc, p_left, v_ring.wait(at));
        wait_for_product<0>(acc, p_left);
        v_ring.release(at);

        record.scores(2 * (2 * block_q * block_k * d));
    }

    // 4. normalise once
    l = across_lanes(l);
    rescale(acc, each_row<rows>([&](int t, int h) { // one division a row
                return l.r[t][h] == 0.0f ? 0.0f : 1.0f / l.r[t][h];
            }));
    store(o + (int64_t{bh} * n + i) * d, acc, n - i);
    if (lse)
        store_rows(lse + int64_t{bh} * n + i, each_row<rows>([&](int t, int h) {
                       const float unit = __fsub_ru(m.r[t][h], weight_bits<T>);
                       return (unit + weight_bits<T>)*0.69314718f +
                              logf(l.r[t][h] * exp2f(-weight_bits<T>));
                   }),
                   n - i);
}

template <class T, int d> attention_status launch(const gpu_call &call)
{
    constexpr int consumers = 2, queries = consumers * block_q;
    constexpr uint32_t shared_bytes =
        ring<T, queries, d, 1>::bytes + 2 * ring<T, block_k, d, stages>::bytes;
    return gpu_launch_hopper(attention_kernel<T, d, consumers>, queries, block_k,
                             (1 + consumers) * 128, shared_bytes, call);
}

// What attention_forward and attention_forward_device launch (common/gpu.h).
const gpu_kernels kernels = {block_q,           block_k,          launch<fp16, 64>,
                             launch<fp16, 128>, launch<bf16, 64>, launch<bf16, 128>};

} // namespace
