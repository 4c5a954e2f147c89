// Stage 7: stage 6 with the softmax of a tile behind the products before and after it.
//
// Owns: attention_forward and attention_forward_device. A consumer begins the scores of a tile and,
// right behind them, the output of the tile before. It seeks the maximum while that output is made,
// and waits for it where acc is to be rescaled. Blocks stay until all is done: while consumers end
// one tile of queries, the producer fetches the next. At d = 128 two blocks fetch k and v for each
// other. A launch begins before the last has ended.
// Build and run: make stage7 && ./stage7/run
// Source: Shah et al. 2024 (FlashAttention-3), section 3.2; docs/performance.md.
#include "attention.h"

#include <math.h>

#include "gpu_hopper.h"

namespace
{

constexpr int block_q = 64, block_k = 128;
// The registers of so many consumers fit. Places of k and v: at d = 128 as many as fit, at 64 more
// change nothing.
template <int d> constexpr int most = d == 64 ? 3 : 2;
template <int d> constexpr int stages = d == 64 ? 4 : 3;

// p is 2^weight_bits times the weight, and so are its sum l and acc: the end divides it out. fp16
// ends at 2^-24 and loses bits from 2^-14 down, so a weight that is small beside the largest, which
// is 1, would lose them too; there is room above 1 for 2^15. bf16 has the range of a float.
template <class T> constexpr float weight_bits = 0.0f;
template <> constexpr float weight_bits<fp16> = 15.0f;

template <class T, int d, int consumers, int blocks>
__global__ void __launch_bounds__((1 + consumers) * 128, 1)
    attention_kernel(const __grid_constant__ tensor_map q, const __grid_constant__ tensor_map k,
                     const __grid_constant__ tensor_map v, T *o, float *lse, int64_t seq,
                     bool causal, float scale_log2, recorder record, int planes)
{
    constexpr int rows = 16, queries = consumers * block_q; // of a warp, of the block
    const int n = static_cast<int>(seq);                    // half the registers of 64 bits
    const auto end = [&](int i) { return causal && i < n ? i : n; }; // of the keys seen before i
    const ring<T, queries, d, 1> q_ring(own_memory());
    const ring<T, block_k, d, stages<d>, blocks> k_ring(q_ring.end()), v_ring(k_ring.end());
    turn<1> q_at;
    turn<stages<d>> at;
    tile_of_round work(n, planes, consumers, blocks, causal);
    open_rings(q_ring, k_ring, v_ring, consumers);
    let_next_launch_begin();

    const int warpgroup = warpgroup_index();
    if (warpgroup == 0) { // the producer
        give_registers<24>();
        if (threadIdx.x > 0) return;
        wait_for_launches_before(); // consumers touch nothing before its first tile has come
        for (; work.exists; work.next(), q_at.next()) {
            const int i_block = work.row, bh = work.plane;
            q_ring.fill(q_at, q, i_block, bh);
            for (int j = 0; j < end(work.end); j += block_k, at.next()) {
                k_ring.fill(at, k, j, bh);
                v_ring.fill(at, v, j, bh);
                const int cols = n - j < block_k ? n - j : block_k;
                record.bytes(2 * cols * d * static_cast<int>(sizeof(T)) / blocks);
            }
        }
        if (blocks > 1) cluster_barrier();
        return;
    }
    take_registers<consumers == 3 ? 160 : 240>();
    const int first = (warpgroup - 1) * block_q; // the warpgroup's row of q_tile
    for (; work.exists; work.next(), q_at.next()) {
        const int i_block = work.row, bh = work.plane;
        const int i = i_block + first + warp_index() % 4 * rows; // the warp's first query
        const int seen = end(i_block + first + block_q);         // by the warpgroup
        if constexpr (blocks == 1)
            if (i_block + first >= work.end) { // nor has it rows of any later tile
                q_ring.leave(q_at), k_ring.leave(at), v_ring.leave(at);
                return;
            }
        const auto q_tile = q_ring.wait(q_at);

        accumulator<rows, block_k> s;
        left_operand<T, rows, block_k> p_left;
        auto acc = zeros<rows, d>();
        auto m = all_rows<rows>(-INFINITY), l = all_rows<rows>(0.0f); // l: of this lane's columns
        turn<stages<d>> before; // of the tile whose output is not yet made
        const auto tile = [&](int j, bool is_first, bool plain) {
            const int cols = n - j < block_k ? n - j : block_k;

            // 1. scores, and the output of the tile before behind them
            start_product_abt(s, q_tile, first, k_ring.wait(at));
            if (!is_first) start_product(acc, p_left, v_ring.tile(before));
            if (is_first)
                wait_for_product<0>(s);
            else
                wait_for_product<1>(s);
            k_ring.release(at);
            if (j + block_k >= seen) q_ring.release(q_at);  // the next q has no other place
            const float factor = plain ? scale_log2 : 1.0f; // what exp2 still has to multiply by
            if (!plain)
                scale_and_mask(s, scale_log2,
                               [&](int t, int h) { return end(i + fragment_row(t, h) + 1) - j; });

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
            v_ring.wait(at); // for the next call; a loop here holds the wait below in its place
            if (!is_first) {
                wait_for_product<0>(acc, p_left);
                v_ring.release(before);
                rescale(acc, correction);
            }
            auto &p = s;
            each_element(p, [&](float x, int t, int h, int) { // up, or p could pass fp16's end
                return exp2_fast(fmaf(x, factor, -__fsub_ru(base.r[t][h], weight_bits<T>)));
            });
            const auto sum = lane_sum(p);
            l = each_row<rows>(
                [&](int t, int h) { return l.r[t][h] * correction.r[t][h] + sum.r[t][h]; });
            if (record.listens)
                record_rows(record, bh, i, j, cols, m, m_new, correction,
                            times(across_lanes(l), exp2f(-weight_bits<T>)));
            m = m_new;
            round_left(p_left, p);
            record.scores(2 * (2 * block_q * block_k * d));
            before = at;
            at.next();
        };
        // Full tiles that every row of the warpgroup sees need no mask.
        const int plain_end = scale_log2 > 0.0f ? end(i_block + first + 1) / block_k * block_k : 0;
        int j = block_k;
        tile(0, true, plain_end > 0);
        for (; j < plain_end; j += block_k) tile(j, false, true);
        for (; j < seen; j += block_k) tile(j, false, false);

        // 3. output, not yet normalised, of the last tile
        start_product(acc, p_left, v_ring.tile(before));
        wait_for_product<0>(acc, p_left);
        v_ring.release(before);
        for (; j < end(work.end); j += block_k, at.next()) { // what only others see
            k_ring.pass(at);
            v_ring.pass(at);
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
    if (blocks > 1) cluster_barrier(); // the other block may not be done with this one's memory
}

template <class T, int d, int consumers, int blocks>
attention_status launch_with(const gpu_call &call)
{
    constexpr int queries = consumers * block_q;
    constexpr uint32_t shared_bytes =
        ring<T, queries, d, 1>::bytes + 2 * ring<T, block_k, d, stages<d>>::bytes;
    return gpu_launch_to_stay(attention_kernel<T, d, consumers, blocks>, queries, block_k,
                              (1 + consumers) * 128, shared_bytes, call, blocks);
}

// As many consumers as it takes to be done in the fewest rounds, and no more: fewer get on faster.
// Under causality a tile of queries is half as long, on the average. Blocks in pairs fetch half of
// each tile of k and v, a chunk of 64 columns, of which d = 64 has one alone. They begin together
// and go in step, which pays from three rounds on. A row's bits depend on none of it.
template <class T, int d> attention_status launch(const gpu_call &call)
{
    const auto rounds = [&](int consumers) { return gpu_rounds(call, consumers * block_q); };
    if (rounds(1) == rounds(most<d>)) return launch_with<T, d, 1, 1>(call);
    if (d == 64 ? rounds(2) == rounds(3) : rounds(2) < 3) return launch_with<T, d, 2, 1>(call);
    return launch_with<T, d, most<d>, d / 64>(call);
}

// What attention_forward and attention_forward_device launch (common/gpu.h).
const gpu_kernels kernels = {block_q,           block_k,          launch<fp16, 64>,
                             launch<fp16, 128>, launch<bf16, 64>, launch<bf16, 128>};

} // namespace
