// Stage 5: stage 4 with loads that hide behind the arithmetic, and less of what is not arithmetic.
//
// Owns: attention_forward and attention_forward_device. k and v have a tile of shared memory each,
// without padding (common/async.h). While the scores are made, v is on its way; while softmax and
// the second product run, the next k is.
// Build and run: make stage5 && ./stage5/run
// Source: Dao 2023 (FlashAttention-2), section 3; docs/performance.md.
#include "attention.h"

#include <math.h>

#include "async.h"
#include "fragment.h"
#include "gpu.h"

namespace
{

constexpr int block_q = 128;
template <int d> constexpr int keys = d == 64 ? 64 : 48; // of a tile: as many as registers hold

// p is 2^weight_bits times the weight, and so are its sum l and acc: the end divides it out. fp16
// ends at 2^-24 and loses bits from 2^-14 down, so a weight that is small beside the largest, which
// is 1, would lose them too; there is room above 1 for 2^15. bf16 has the range of a float.
template <class T> constexpr float weight_bits = 0.0f;
template <> constexpr float weight_bits<fp16> = 15.0f;

template <class T, int d, int warps>
__global__ void __launch_bounds__(warps * 32)
    attention_kernel(const T *q, const T *k, const T *v, T *o, float *lse, int64_t seq, bool causal,
                     float scale, recorder record)
{
    const float scale_log2 = scale * 1.44269504f;               // exp2 takes the place of exp
    constexpr int threads = warps * 32, rows = block_q / warps; // a warp owns `rows` queries
    constexpr int block_k = keys<d>;
    const int n = static_cast<int>(seq); // half the registers of 64 bits
    const int q_tiles = (n - 1) / block_q + 1, planes = static_cast<int>(gridDim.x) / q_tiles;
    // The longest tiles of queries first, as in stage 4, but of 16 heads at a time: blocks side by
    // side then share their k and v in the L2.
    const int block = static_cast<int>(blockIdx.x), group = block / (16 * q_tiles) * 16;
    const int heads = planes - group < 16 ? planes - group : 16, in_group = block - group * q_tiles;
    const int i_block = (q_tiles - 1 - in_group / heads) * block_q, bh = group + in_group % heads;
    const auto end = [&](int i) { return causal && i < n ? i : n; }; // of the keys seen before i
    const int seen = end(i_block + block_q);                         // by the block
    const int i = i_block + warp_index() * rows;                     // the warp's first query
    int64_t at = int64_t{bh} * n * d;                                // of this tile's k and v
    const swizzled_tile<T, block_q, d> q_tile(0);
    const swizzled_tile<T, block_k, d> k_tile(q_tile.end()), v_tile(k_tile.end());

    left_operand<T, rows, d> q_rows; // at d = 128 its registers are needed: q stays in its tile
    load_tile_async<threads>(q_tile, q + (int64_t{bh} * n + i_block) * d, n - i_block);
    load_tile_async<threads>(k_tile, k + at, seen);
    wait_for_copies();
    barrier();
    if (d == 64) load_left(q_rows, q_tile, warp_index() * rows);

    auto acc = zeros<rows, d>();
    auto m = all_rows<rows>(-INFINITY), l = all_rows<rows>(0.0f); // l: of this lane's columns
    for (int j = 0; j < seen; j += block_k, at += block_k * d) {
        const int cols = n - j < block_k ? n - j : block_k;
        wait_for_copies();
        barrier(); // k is there for all, and v of the last round has been read
        load_tile_async<threads>(v_tile, v + at, seen - j); // else 0 x NaN could be

        // 1. scores
        const int first = warp_index() * rows;
        auto s = d == 64 ? product_abt<T, rows, block_k, d>(q_rows, k_tile)
                         : product_abt<T, rows, block_k, d>(q_tile, first, k_tile);
        wait_for_copies();
        barrier(); // v is there for all, and k has been read
        load_tile_async<threads>(k_tile, k + at + block_k * d, seen - j - block_k);
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
        add_product(acc, p, 1.0f, v_tile);

        record.tile(2 * (2 * block_q * block_k * d), 2 * cols * d * static_cast<int>(sizeof(T)));
    }

    wait_for_copies(); // of the tile past the last, which nobody reads

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
    constexpr uint32_t shared_bytes =
        swizzled_tile<T, block_q, d>::bytes + 2 * swizzled_tile<T, keys<d>, d>::bytes;
    constexpr int warps = 4; // of 32 rows: each ldmatrix of k and v feeds four mma
    return gpu_launch(attention_kernel<T, d, warps>, block_q, warps * 32, shared_bytes, call);
}

// What attention_forward and attention_forward_device launch (common/gpu.h).
const gpu_kernels kernels = {block_q,          BLOCK_K_BY_HEAD_DIM(keys<64>, keys<128>),
                             launch<fp16, 64>, launch<fp16, 128>,
                             launch<bf16, 64>, launch<bf16, 128>};

} // namespace
