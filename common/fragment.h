// fragment.h: which lane of a warp holds which element, and the arithmetic on such fragments.
// PTX stands here, in tile.h, async.h and hopper.h alone; without nvcc the same operations come
// from the emulator.
//
// An accumulator of 16 x 8 (fp32): lane l holds rows l / 4 and l / 4 + 8, columns 2 (l % 4) and
// 2 (l % 4) + 1, as c0 c1 and c2 c3:
//
//              column 0 1     2 3     4 5     6 7
//     row 0         lane 0  lane 1  lane 2  lane 3    c0 c1     so a row lies in four
//     row 1         lane 4  lane 5  lane 6  lane 7    c0 c1     neighbouring lanes, and a
//       ...           ...                                       row's maximum takes two
//     row 7         lane 28 lane 29 lane 30 lane 31   c0 c1     shuffles
//     row 8         lane 0  lane 1  lane 2  lane 3    c2 c3
//       ...           ...
// A left operand of 16 x 16 (16-bit) is two such tiles side by side, two elements a register:
// a0 (rows 0-7) a1 (rows 8-15) of columns 0-7, a2 a3 of columns 8-15. That is why a tile of
// p, once rounded, is a left operand without moving between lanes.
#ifndef FRAGMENT_H
#define FRAGMENT_H

#include <math.h>

#include "recorder.h"
#include "tile.h"

namespace
{

// ---- the operations of the hardware ----

// x, which all lanes have alike. A shuffle lets the compiler know, which then keeps what follows
// from x in the registers that a warp has in common.
__device__ inline int uniform(int x)
{
#ifdef __CUDACC__
    return __shfl_sync(0xffffffff, x, 0);
#else
    return x;
#endif
}
__device__ inline int warp_index()
{
    return uniform(static_cast<int>(threadIdx.x / 32));
}
__device__ inline int lane_index()
{
    return static_cast<int>(threadIdx.x % 32); // unsigned: a signed / or % takes more instructions
}

#ifdef __CUDACC__
template <bool transposed> __device__ inline void ldmatrix_x4(uint32_t x[4], uint32_t address, site)
{
    const uint32_t a = static_cast<uint32_t>(__cvta_generic_to_shared(shared_memory)) + address;
    if (transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(a)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(a)
                     : "memory");
}

__device__ inline void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1, fp16, site)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else // Turing: the two halves of the depth, one after the other
    for (int half = 0; half < 2; half++)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(half ? b1 : b0));
#endif
}

__device__ inline void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1, bf16, site)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    (void)c, (void)a, (void)b0, (void)b1; // the host refuses bf16 before it launches on Turing
#endif
}

// Two numbers rounded to nearest even, the first in the low half.
__device__ inline uint32_t round_pair(float low, float high, fp16)
{
    uint32_t x;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
#else
    asm("{ .reg .f16 a, b; cvt.rn.f16.f32 a, %1; cvt.rn.f16.f32 b, %2; mov.b32 %0, {a, b}; }"
        : "=r"(x)
        : "f"(low), "f"(high));
#endif
    return x;
}

__device__ inline uint32_t round_pair(float low, float high, bf16)
{
    uint32_t x = 0;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
#endif
    return x;
}

template <class V> __device__ inline V shuffle_xor(V x, int mask, site)
{
    return __shfl_xor_sync(0xffffffff, x, mask);
}

// 2^x within 2 units of 2^-23; exactly 1 for 0 and 0 for -inf; NaN stays NaN.
__device__ inline float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#else
template <bool transposed> inline void ldmatrix_x4(uint32_t x[4], uint32_t address, site where)
{
    emulator::ldmatrix_x4(x, address, transposed, where);
}

inline void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1, fp16, site where)
{
    const uint32_t b[2] = {b0, b1};
    if (EMULATED_ARCH >= 800) return emulator::mma_m16n8k16_fp16(c, a, b, where);
    emulator::mma_m16n8k8_fp16(c, a, b, where);
    emulator::mma_m16n8k8_fp16(c, a + 2, b + 1, where);
}

inline void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1, bf16, site where)
{
    const uint32_t b[2] = {b0, b1};
    emulator::mma_m16n8k16_bf16(c, a, b, where);
}

inline uint32_t round_pair(float low, float high, fp16)
{
    return fp16_from_float(low) | static_cast<uint32_t>(fp16_from_float(high)) << 16;
}

inline uint32_t round_pair(float low, float high, bf16)
{
    return bf16_from_float(low) | static_cast<uint32_t>(bf16_from_float(high)) << 16;
}

using emulator::shuffle_xor;
inline float shuffle_xor(float x, int mask, site where)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = shuffle_xor(bits, mask, where);
    memcpy(&x, &bits, 4);
    return x;
}

inline float exp2_fast(float x)
{
    return exp2f(x);
}
#endif

// ---- fragments ----

// The 16 x 16 elements at (row, col): x0 x1 x2 x3 are the 8 x 8 tiles top left, bottom left, top
// right, bottom right: a left operand, or, transposed, two right operands x0 x1 and x2 x3.
template <bool transposed, class Tile>
__device__ inline void load_16x16(uint32_t x[4], Tile tile, int row, int col, site where)
{
    const int lane = lane_index();
    ldmatrix_x4<transposed>(x, tile.shifted(tile.address(lane % 16, lane / 16 * 8), row, col),
                            where);
}

// The same with top right before bottom left, for the right operands of a b^T. A right operand is
// a pair of registers side by side: out of the order above every pair would first be moved
// together.
template <class Tile>
__device__ inline void load_right(uint32_t x[4], Tile tile, int row, int col, site where)
{
    const int lane = lane_index();
    ldmatrix_x4<false>(
        x, tile.shifted(tile.address(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8), row, col), where);
}

template <int rows, int cols> struct accumulator {
    float c[rows / 16][cols / 8][4];
};
template <class T, int rows, int cols> struct left_operand {
    uint32_t a[rows / 16][cols / 16][4];
};
template <int rows> struct row_vector {
    float r[rows / 16][2];
}; // rows l / 4 and l / 4 + 8

// The row, among the warp's, of half h of 16-row tile t in this lane.
__device__ inline int fragment_row(int t, int h)
{
    return 16 * t + 8 * h + lane_index() / 4;
}

template <int rows> __device__ inline row_vector<rows> all_rows(float x)
{
    row_vector<rows> y;
    for (int t = 0; t < rows / 16; t++) y.r[t][0] = y.r[t][1] = x;
    return y;
}

template <int rows, int cols> __device__ inline accumulator<rows, cols> zeros()
{
    return accumulator<rows, cols>{};
}

template <int rows, class F> __device__ inline row_vector<rows> each_row(F f)
{
    row_vector<rows> y;
    for (int t = 0; t < rows / 16; t++)
        for (int h = 0; h < 2; h++) y.r[t][h] = f(t, h);
    return y;
}

// Every element x of row `row` and column `col` becomes f(x, t, h, col); h as in fragment_row.
template <int rows, int cols, class F>
__device__ inline void each_element(accumulator<rows, cols> &x, F f)
{
    UNROLL for (int i = 0; i < rows / 16 * cols / 8 * 4; i++)
    {
        const int t = i / (cols / 2), n = i / 4 % (cols / 8), e = i % 4;
        x.c[t][n][e] = f(x.c[t][n][e], t, e / 2, 8 * n + lane_index() % 4 * 2 + e % 2);
    }
}

// x becomes scale x in columns below end(t, h), and -inf in the others. Less its lane's share a
// column is a constant, so that end is all that there is to compute.
template <int rows, int cols, class F>
__device__ inline void scale_and_mask(accumulator<rows, cols> &x, float scale, F end)
{
    UNROLL for (int t = 0; t < rows / 16; t++)
    {
        int ends[2];
        UNROLL for (int h = 0; h < 2; h++) ends[h] = end(t, h) - lane_index() % 4 * 2;
        UNROLL for (int i = 0; i < cols / 2; i++)
        {
            float &y = x.c[t][i / 4][i % 4];
            y = i / 4 * 8 + i % 2 < ends[i % 4 / 2] ? __fmul_rn(y, scale) : -INFINITY;
        }
    }
}

template <class T, int rows, int d, class Tile>
__device__ inline void load_left(left_operand<T, rows, d> &q, Tile tile, int first_row,
                                 site where = site())
{
    for (int t = 0; t < rows / 16; t++)
        for (int k = 0; k < d / 16; k++)
            load_16x16<false>(q.a[t][k], tile, first_row + 16 * t, 16 * k, where);
}

// s += q k^T over columns 16 k to 16 k + 15, of which q holds its own as a[t][in_q].
template <class T, int rows, int cols, int held, class Tile>
__device__ inline void add_product_abt(accumulator<rows, cols> &s,
                                       const left_operand<T, rows, held> &q, int in_q, Tile k_tile,
                                       int k, site where)
{
    UNROLL for (int n = 0; n < cols / 16; n++)
    {
        uint32_t b[4];
        load_right(b, k_tile, 16 * n, 16 * k, where);
        for (int t = 0; t < rows / 16; t++) {
            mma(s.c[t][2 * n], q.a[t][in_q], b[0], b[1], T(), where);
            mma(s.c[t][2 * n + 1], q.a[t][in_q], b[2], b[3], T(), where);
        }
    }
}

// q k^T, k_tile [cols, d]
template <class T, int rows, int cols, int d, class Tile>
__device__ inline accumulator<rows, cols> product_abt(const left_operand<T, rows, d> &q,
                                                      Tile k_tile, site where = site())
{
    auto s = zeros<rows, cols>();
    UNROLL for (int k = 0; k < d / 16; k++) add_product_abt(s, q, k, k_tile, k, where);
    return s;
}

// The same with q [., d] in shared memory, rows first_row on: read again each time, no registers.
template <class T, int rows, int cols, int d, template <class, int, int> class QTile, int rows_q,
          class Tile>
__device__ inline accumulator<rows, cols> product_abt(QTile<T, rows_q, d> q_tile, int first_row,
                                                      Tile k_tile, site where = site())
{
    auto s = zeros<rows, cols>();
    UNROLL for (int k = 0; k < d / 16; k++)
    {
        left_operand<T, rows, 16> q;
        for (int t = 0; t < rows / 16; t++)
            load_16x16<false>(q.a[t][0], q_tile, first_row + 16 * t, 16 * k, where);
        add_product_abt(s, q, 0, k_tile, k, where);
    }
    return s;
}

// acc += (unit p) v, with unit p rounded to v's type; v_tile [cols, d]
template <class T, int rows, int cols, int d, template <class, int, int> class Tile>
__device__ inline void add_product(accumulator<rows, d> &acc, const accumulator<rows, cols> &p,
                                   float unit, Tile<T, cols, d> v_tile, site where = site())
{
    UNROLL for (int k = 0; k < cols / 16; k++)
    {
        uint32_t a[rows / 16][4];
        for (int t = 0; t < rows / 16; t++)
            for (int r = 0; r < 4; r++) {
                const float *c = &p.c[t][2 * k + r / 2][r % 2 * 2];
                a[t][r] = round_pair(c[0] * unit, c[1] * unit, T());
            }
        UNROLL for (int n = 0; n < d / 16; n++)
        {
            uint32_t b[4];
            load_16x16<true>(b, v_tile, 16 * k, 16 * n, where);
            for (int t = 0; t < rows / 16; t++) {
                mma(acc.c[t][2 * n], a[t], b[0], b[1], T(), where);
                mma(acc.c[t][2 * n + 1], a[t], b[2], b[3], T(), where);
            }
        }
    }
}

template <int rows, int cols>
__device__ inline row_vector<rows> row_max(const accumulator<rows, cols> &s, site where = site())
{
    return each_row<rows>([&](int t, int h) {
        float x = -INFINITY;
        for (int n = 0; n < cols / 8; n++)
            x = fmaxf(x, fmaxf(s.c[t][n][2 * h], s.c[t][n][2 * h + 1]));
        x = fmaxf(x, shuffle_xor(x, 1, where));
        return fmaxf(x, shuffle_xor(x, 2, where));
    });
}

// Over the columns that this lane holds, and then over the four lanes of a row.
template <int rows, int cols>
__device__ inline row_vector<rows> lane_sum(const accumulator<rows, cols> &p)
{
    return each_row<rows>([&](int t, int h) {
        float x = 0.0f;
        for (int n = 0; n < cols / 8; n++) x += p.c[t][n][2 * h] + p.c[t][n][2 * h + 1];
        return x;
    });
}

template <int rows>
__device__ inline row_vector<rows> across_lanes(const row_vector<rows> &x, site where = site())
{
    return each_row<rows>([&](int t, int h) {
        const float y = x.r[t][h] + shuffle_xor(x.r[t][h], 1, where);
        return y + shuffle_xor(y, 2, where);
    });
}

template <int rows, int cols>
__device__ inline row_vector<rows> row_sum(const accumulator<rows, cols> &p, site where = site())
{
    return across_lanes(lane_sum(p), where);
}

template <int rows>
__device__ inline row_vector<rows> times(const row_vector<rows> &x, float factor)
{
    return each_row<rows>([&](int t, int h) { return x.r[t][h] * factor; });
}

template <int rows, int cols>
__device__ inline void rescale(accumulator<rows, cols> &acc, const row_vector<rows> &by)
{
    each_element(acc, [&](float x, int t, int h, int) { return x * by.r[t][h]; });
}

// Of the four lanes of a row each holds x[0] to x[3]; afterwards lane i holds x[i] of lanes 0 to 3.
__device__ inline void exchange_in_row(uint32_t x[4], site where)
{
    UNROLL for (int bit = 1; bit < 4; bit *= 2)
    {
        const bool upper = lane_index() & bit;
        UNROLL for (int i = 0; i < 4; i++)
        {
            if (i & bit) continue;
            const uint32_t got = shuffle_xor(upper ? x[i] : x[i + bit], bit, where);
            x[i] = upper ? got : x[i];
            x[i + bit] = upper ? x[i + bit] : got;
        }
    }
}

// Rounds the first `valid` rows and writes them, 16 bytes a lane: pieces of a row that are written
// by themselves cost as much each.
template <class T, int rows, int cols>
__device__ inline void store(T *to, const accumulator<rows, cols> &x, int64_t valid,
                             site where = site())
{
    constexpr int in_row = cols / 32; // each of 4 tiles of 8 columns, one a lane
    UNROLL for (int i = 0; i < rows / 8 * in_row; i++)
    {
        const int t = i / in_row / 2, h = i / in_row % 2, n = i % in_row * 4;
        uint32_t piece[4];
        UNROLL for (int p = 0; p < 4; p++) piece[p] =
            round_pair(x.c[t][n + p][2 * h], x.c[t][n + p][2 * h + 1], T());
        exchange_in_row(piece, where);
        const int row = fragment_row(t, h);
        if (row < valid)
            global_store_16(to + row * cols + 8 * (n + lane_index() % 4),
                            uint4{piece[0], piece[1], piece[2], piece[3]}, where);
    }
}

template <int rows>
__device__ inline void store_rows(float *to, const row_vector<rows> &x, int64_t valid)
{
    for (int t = 0; t < rows / 16; t++)
        for (int h = 0; h < 2; h++)
            if (lane_index() % 4 == 0 && fragment_row(t, h) < valid)
                to[fragment_row(t, h)] = x.r[t][h];
}

// Hands one step of the recurrence to the recorder; the warp's first query is i.
template <int rows>
__device__ inline void record_rows(const recorder &record, int64_t bh, int64_t i, int64_t first_key,
                                   int64_t keys, const row_vector<rows> &m_old,
                                   const row_vector<rows> &m_new,
                                   const row_vector<rows> &correction, const row_vector<rows> &l)
{
    for (int t = 0; t < rows / 16; t++)
        for (int h = 0; h < 2; h++)
            if (lane_index() % 4 == 0)
                record.rebase(bh, i + fragment_row(t, h), first_key, keys, m_old.r[t][h],
                              m_new.r[t][h], correction.r[t][h], l.r[t][h]);
}

} // namespace
#endif
