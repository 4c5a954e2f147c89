// Stage 4: stage 3 with a bound on the key loop: tiles wholly in the future are never visited.
//
// Owns: attention_forward and attention_forward_device, as stage 3 does, and attention_keys_end,
// the bound. Under causality the tiles of queries now differ in work, so the longest start first.
// Build and run: make stage4 && ./stage4/run
// Source: Exact, section 7; Forward, part 3.
#include "attention.h"

#include <math.h>

#include "fragment.h"
#include "gpu.h"
#include "util.h"

// The end of the keys that any of the `rows` queries from i on sees.
extern "C" __host__ __device__ int64_t attention_keys_end(int64_t i, int64_t rows, int64_t n,
                                                          bool causal)
{
    // the bound
    return causal && i + rows < n ? i + rows : n;
}

namespace
{

constexpr int block_q = 128, block_k = 64;

// What p is multiplied by before it is rounded. fp16 ends at 2^-24 and loses bits from 2^-14 down,
// so a weight that is small beside the largest, which is 1, would lose them too; there is room
// above 1 for 2^15. bf16 has the range of a float.
template <class T> constexpr float weight_unit = 1.0f;
template <> constexpr float weight_unit<fp16> = 32768.0f;

template <class T, int d, int warps>
__global__ void __launch_bounds__(warps * 32)
    attention_kernel(const T *q, const T *k, const T *v, T *o, float *lse, int64_t n, bool causal,
                     float scale, recorder record)
{
    const float scale_log2 = scale * 1.44269504f;               // exp2 takes the place of exp
    constexpr int threads = warps * 32, rows = block_q / warps; // a warp owns `rows` queries
    const int64_t q_tiles = (n - 1) / block_q + 1;
    const int64_t planes = gridDim.x / q_tiles, bh = blockIdx.x % planes;
    const int64_t i_block = (q_tiles - 1 - blockIdx.x / planes) * block_q; // the longest first
    const int64_t seen = attention_keys_end(i_block, block_q, n, causal);  // by the block
    const int64_t i = i_block + warp_index() * rows;                       // the warp's first query
    const shared_tile<T, block_q, d> q_tile(0);
    const shared_tile<T, block_k, d> k_tile(0), v_tile(k_tile.end());

    left_operand<T, rows, d> q_rows;
    load_tile<threads>(q_tile, q + (bh * n + i_block) * d, n - i_block);
    barrier();
    load_left(q_rows, q_tile, warp_index() * rows);

    auto acc = zeros<rows, d>();
    auto m = all_rows<rows>(-INFINITY), l = all_rows<rows>(0.0f);
    for (int64_t j = 0; j < seen; j += block_k) {
        const int64_t cols = min64(block_k, n - j);
        barrier(); // the tiles of the last round have been read
        load_tile<threads>(k_tile, k + (bh * n + j) * d, cols);
        load_tile<threads>(v_tile, v + (bh * n + j) * d, seen - j); // else 0 x NaN could be
        barrier();                                                  // the new ones are there

        // 1. scores
        auto s = product_abt<T, rows, block_k, d>(q_rows, k_tile);
        each_element(s, [&](float x, int, int, int) {
            return __fmul_rn(x, scale_log2);
        }); // what the max sees
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
        record_rows(record, bh, i, j, cols, m, m_new, correction, l);
        m = m_new;

        // 3. output, not yet normalised
        add_product(acc, p, weight_unit<T>, v_tile);

        record.tile(2 * (2 * block_q * block_k * d), 2 * cols * d * static_cast<int>(sizeof(T)));
    }

    // 4. normalise once
    each_element(acc, [&](float x, int t, int h, int) {
        return l.r[t][h] == 0.0f ? 0.0f : x / (l.r[t][h] * weight_unit<T>);
    });
    store(o + (bh * n + i) * d, acc, n - i);
    if (lse)
        store_rows(lse + bh * n + i, each_row<rows>([&](int t, int h) {
                       return m.r[t][h] * 0.69314718f + logf(l.r[t][h]);
                   }),
                   n - i);
}

template <class T, int d> attention_status launch(const gpu_call &call)
{
    // The tile of q leaves for registers before those of k and v arrive in its place.
    constexpr uint32_t q_bytes = shared_tile<T, block_q, d>::bytes;
    constexpr uint32_t kv_bytes = 2 * shared_tile<T, block_k, d>::bytes;
    constexpr int warps = d / 16; // of 32 rows at d = 64; at 128 registers hold only 16
    return gpu_launch(attention_kernel<T, d, warps>, block_q, warps * 32,
                      q_bytes > kv_bytes ? q_bytes : kv_bytes, call);
}

// What attention_forward and attention_forward_device launch (common/gpu.h).
const gpu_kernels kernels = {block_q,           block_k,          launch<fp16, 64>,
                             launch<fp16, 128>, launch<bf16, 64>, launch<bf16, 128>};

} // namespace
