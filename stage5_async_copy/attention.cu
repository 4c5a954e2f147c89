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
#include "util.h"

namespace
{

constexpr int block_q = 128, block_k = 64;

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
    const int n = static_cast<int>(seq);                        // half the registers of 64 bits
    const int q_tiles = (n - 1) / block_q + 1, planes = static_cast<int>(gridDim.x) / q_tiles;
    // The longest tiles of queries first, as in stage 4.
    const int i_block = (q_tiles - 1 - static_cast<int>(blockIdx.x) / planes) * block_q;
    const int seen = causal && i_block + block_q < n ? i_block + block_q : n; // by the block
    const int i = i_block + warp_index() * rows; // the warp's first query
    const int64_t bh = static_cast<int>(blockIdx.x) % planes;
    int64_t at = bh * n * d; // of this tile's k and v
    const swizzled_tile<T, block_q, d> q_tile(0);
    const swizzled_tile<T, block_k, d> k_tile(q_tile.end()), v_tile(k_tile.end());

    left_operand<T, rows, d> q_rows;
    load_tile_async<threads>(q_tile, q + (bh * n + i_block) * d, n - i_block);
    load_tile_async<threads>(k_tile, k + at, seen);
    wait_for_copies();
    barrier();
    load_left(q_rows, q_tile, warp_index() * rows);

    auto acc = zeros<rows, d>();
    auto m = all_rows<rows>(-INFINITY), l = all_rows<rows>(0.0f); // l: of this lane's columns
    for (int j = 0; j < seen; j += block_k, at += block_k * d) {
        const int cols = n - j < block_k ? n - j : block_k;
        wait_for_copies();
        barrier(); // k is there for all, and v of the last round has been read
        load_tile_async<threads>(v_tile, v + at, seen - j); // else 0 x NaN could be

        // 1. scores
        auto s = product_abt<T, rows, block_k, d>(q_rows, k_tile);
        wait_for_copies();
        barrier(); // v is there for all, and k has been read
        load_tile_async<threads>(k_tile, k + at + block_k * d, seen - j - block_k);
        each_element(s, [&](float x, int, int, int) {
            return __fmul_rn(x, scale_log2);
        }); // what the max sees
        if (j + block_k > seen || (causal && j + block_k - 1 > i))
            each_element(s, [&](float x, int t, int h, int c) {
                const int key = j + c;
                return key < seen && (!causal || key <= i + fragment_row(t, h)) ? x : -INFINITY;
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
        each_element(p, [&](float x, int t, int h, int) { // up, or p could pass fp16's end
            return exp2_fast(x - __fsub_ru(base.r[t][h], weight_bits<T>));
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

    wait_for_copies(); // of a tile that nobody needs

    // 4. normalise once
    l = across_lanes(l);
    rescale(acc, each_row<rows>([&](int t, int h) { // one division a row
                return l.r[t][h] == 0.0f ? 0.0f : 1.0f / l.r[t][h];
            }));
    store(o + (bh * n + i) * d, acc, n - i);
    if (lse)
        store_rows(lse + bh * n + i, each_row<rows>([&](int t, int h) {
                       const float unit = __fsub_ru(m.r[t][h], weight_bits<T>);
                       return (unit + weight_bits<T>)*0.69314718f +
                              logf(l.r[t][h] * exp2f(-weight_bits<T>));
                   }),
                   n - i);
}

template <class T, int d> attention_status launch(const gpu_call &call)
{
    constexpr uint32_t shared_bytes =
        swizzled_tile<T, block_q, d>::bytes + 2 * swizzled_tile<T, block_k, d>::bytes;
    constexpr int warps = d / 16; // of 32 rows at d = 64; at 128 registers hold only 16
    return gpu_launch(attention_kernel<T, d, warps>, block_q, warps * 32, shared_bytes, call);
}

// What attention_forward and attention_forward_device launch (common/gpu.h).
const gpu_kernels kernels = {block_q,           block_k,          launch<fp16, 64>,
                             launch<fp16, 128>, launch<bf16, 64>, launch<bf16, 128>};

} // namespace
