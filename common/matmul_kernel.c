// matmul_kernel.c: the inner loops of matmul.h for one instruction set.
//
// The Makefile compiles this file once per instruction set, naming the result with -DKERNEL, and
// with -ffp-contract=fast, so that a * b + c becomes one fused multiply-add.
//
// The products keep a block of ROWS x (VECTORS x LANES) accumulators in registers and walk the
// depth: each step loads VECTORS vectors of b, broadcasts ROWS elements of a, and does ROWS x
// VECTORS multiply-adds. AVX-512 and NEON have 32 registers, the others 16.
#include "matmul_kernel.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#if defined(__AVX512F__)
#define INSTRUCTION_SET "AVX-512"
enum { LANES = 16, VECTORS = 4 };
#elif defined(__AVX2__) && defined(__FMA__)
#define INSTRUCTION_SET "AVX2"
enum { LANES = 8, VECTORS = 2 };
#elif defined(__aarch64__)
#define INSTRUCTION_SET "NEON"
enum { LANES = 4, VECTORS = 4 };
#else
#define INSTRUCTION_SET "128-bit vectors"
enum { LANES = 4, VECTORS = 2 };
#endif

enum { ROWS = 6, WIDTH = VECTORS * LANES, DEPTH_MAX = 256, SUMS = 16 };

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef float vec_unaligned __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef float vec4 __attribute__((vector_size(16), aligned(4), may_alias));

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif
#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const float *x)
{
    return *(const vec_unaligned *)x;
}

INLINE void store(float *x, vec value)
{
    *(vec_unaligned *)x = value;
}

// acc = a b over the depth, then c = scale acc or c = c + acc. rows and vectors are constants at
// every call, so the loops unroll and acc lives in registers. Only `cols` columns of c exist.
INLINE void block(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb,
                  int64_t depth, const int rows, const int vectors, int64_t cols, bool add,
                  float scale)
{
    vec acc[ROWS][VECTORS];
    UNROLL
    for (int r = 0; r < rows; r++) UNROLL
    for (int64_t x = 0; x < vectors; x++) acc[r][x] = (vec){0};

    for (int64_t t = 0; t < depth; t++) {
        vec row_of_b[VECTORS];
        UNROLL
        for (int64_t x = 0; x < vectors; x++) row_of_b[x] = load(b + t * ldb + x * LANES);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const vec broadcast = a[r * lda + t] - (vec){0};
            UNROLL
            for (int64_t x = 0; x < vectors; x++) acc[r][x] += broadcast * row_of_b[x];
        }
    }

    UNROLL
    for (int r = 0; r < rows; r++) {
        float *out = c + r * ldc, edge[WIDTH];
        const bool whole = cols >= (int64_t)vectors * LANES;
        if (!whole && add) memcpy(edge, out, (size_t)cols * sizeof *edge);
        float *target = whole ? out : edge;
        UNROLL
        for (int64_t x = 0; x < vectors; x++)
            store(target + x * LANES,
                  add ? load(target + x * LANES) + acc[r][x] : scale * acc[r][x]);
        if (!whole) memcpy(out, edge, (size_t)cols * sizeof *edge);
    }
}

// A panel of at most WIDTH columns: ROWS rows at a time, then the rest by fours, since 4 + 4 rows
// keep more multiply-adds in flight than 6 + 2.
INLINE void panel_product(float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
                          int64_t ldb, int64_t rows, int64_t cols, int64_t depth, bool add,
                          float scale, const int vectors)
{
    int64_t r = 0;
    for (; rows - r >= ROWS + 4 || rows - r == ROWS; r += ROWS)
        block(c + r * ldc, ldc, a + r * lda, lda, b, ldb, depth, ROWS, vectors, cols, add, scale);
    for (; r + 4 <= rows; r += 4)
        block(c + r * ldc, ldc, a + r * lda, lda, b, ldb, depth, 4, vectors, cols, add, scale);
    for (; r + 2 <= rows; r += 2)
        block(c + r * ldc, ldc, a + r * lda, lda, b, ldb, depth, 2, vectors, cols, add, scale);
    if (r < rows)
        block(c + r * ldc, ldc, a + r * lda, lda, b, ldb, depth, 1, vectors, cols, add, scale);
}

static void panel(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb,
                  int64_t rows, int64_t cols, int64_t depth, bool add, float scale)
{
    if (cols > WIDTH / 2)
        panel_product(c, ldc, a, lda, b, ldb, rows, cols, depth, add, scale, VECTORS);
    else if (cols > LANES)
        panel_product(c, ldc, a, lda, b, ldb, rows, cols, depth, add, scale, VECTORS / 2);
    else
        panel_product(c, ldc, a, lda, b, ldb, rows, cols, depth, add, scale, 1);
}

// packed[t][x] = b[x][t]: the columns of b^T side by side, zeros where b has no row. Four by four
// in registers, because a scalar transpose would take a seventh of the whole product's time.
static void pack_transposed(float *packed, const float *b, int64_t ldb, int64_t cols, int64_t depth)
{
    const int64_t row = WIDTH;
    for (int64_t x = 0; x < WIDTH; x += 4) {
        int64_t t = 0;
        if (x + 4 <= cols)
            for (; t + 4 <= depth; t += 4) {
                const float *from = b + x * ldb + t;
                const vec4 r0 = *(const vec4 *)from, r1 = *(const vec4 *)(from + ldb);
                const vec4 r2 = *(const vec4 *)(from + 2 * ldb),
                           r3 = *(const vec4 *)(from + 3 * ldb);
                const vec4 low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
                const vec4 low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
                const vec4 high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
                const vec4 high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
                float *to = packed + t * WIDTH + x;
                *(vec4 *)to = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
                *(vec4 *)(to + row) = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
                *(vec4 *)(to + row * 2) = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
                *(vec4 *)(to + row * 3) = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
            }
        for (; t < depth; t++)
            for (int64_t y = x; y < x + 4; y++)
                packed[t * WIDTH + y] = y < cols ? b[y * ldb + t] : 0.0f;
    }
}

static void abt(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb,
                int64_t rows, int64_t cols, int64_t depth, float scale)
{
    float packed[DEPTH_MAX * WIDTH] __attribute__((aligned(64)));
    for (int64_t x = 0; x < cols; x += WIDTH) {
        const int64_t width = cols - x < WIDTH ? cols - x : WIDTH;
        pack_transposed(packed, b + x * ldb, ldb, width, depth);
        panel(c + x, ldc, a, lda, packed, WIDTH, rows, width, depth, false, scale);
    }
}

static void ab(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb,
               int64_t rows, int64_t cols, int64_t depth)
{
    float padded[DEPTH_MAX * WIDTH] __attribute__((aligned(64)));
    for (int64_t t = 0; t < depth; t += DEPTH_MAX) {
        const int64_t stretch = depth - t < DEPTH_MAX ? depth - t : DEPTH_MAX;
        for (int64_t x = 0; x < cols; x += WIDTH) {
            const int64_t width = cols - x < WIDTH ? cols - x : WIDTH;
            const float *from = b + t * ldb + x;
            int64_t ld = ldb;
            if (width < WIDTH) { // whole vectors must be readable
                memset(padded, 0, (size_t)(stretch * WIDTH) * sizeof *padded);
                for (int64_t y = 0; y < stretch; y++)
                    memcpy(padded + y * WIDTH, from + y * ldb, (size_t)width * sizeof *padded);
                from = padded;
                ld = WIDTH;
            }
            panel(c + x, ldc, a + t, lda, from, ld, rows, width, stretch, true, 1.0f);
        }
    }
}

// yes where the mask is all ones, no where it is zero. (C has no ?: for vectors.)
INLINE vec select(ivec mask, vec yes, vec no)
{
    return (vec)((mask & (ivec)yes) | (~mask & (ivec)no));
}

static float row_max(const float *x, int64_t count)
{
    enum { PARTS = 4, STEP = PARTS * LANES }; // four chains: each select waits for the one before
    vec most[PARTS];
    for (int64_t part = 0; part < PARTS; part++) most[part] = (vec){0} - INFINITY;
    int64_t i = 0;
    for (; i + STEP <= count; i += STEP)
        for (int64_t part = 0; part < PARTS; part++) {
            const vec next = load(x + i + part * LANES);
            most[part] = select(next > most[part], next, most[part]);
        }
    for (int64_t part = 1; part < PARTS; part++)
        most[0] = select(most[part] > most[0], most[part], most[0]);
    float result = -INFINITY;
    for (int e = 0; e < LANES; e++) result = most[0][e] > result ? most[0][e] : result;
    for (; i < count; i++) result = x[i] > result ? x[i] : result;
    return result;
}

// exp(x) = 2^n e^r with n = round(x / ln 2), r = x - n ln 2, |r| <= ln 2 / 2; e^r is a minimax
// polynomial within 0.08 units of the last place. A comparison with NaN is false, so NaN passes
// both clamps.
INLINE vec exponential(vec x)
{
    const float round_to_integer = 0x1.8p23f; // adding it leaves no bits for a fraction
    x = select(x < -87.3f, (vec){0} - 87.3f, x);
    x = select(x > 89.0f, (vec){0} + 89.0f, x);
    const vec shifted = x * 0x1.715476p0f + round_to_integer;
    const vec n = shifted - round_to_integer;
    const vec r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f; // ln 2 in two parts
    vec q = r * 0x1.6a234ep-10f + 0x1.123a6cp-7f;
    q = q * r + 0x1.5558f4p-5f;
    q = q * r + 0x1.555490p-3f;
    q = q * r + 0x1.fffffcp-2f;
    const vec e = (q * r) * r + r + 1.0f;
    // 2 e^r times 2^(n-1), built in the exponent field: n = 128 still fits, n = -126 gives 0.
    const ivec exponent = ((ivec)shifted - (ivec)((vec){0} + round_to_integer) + 126) << 23;
    return (e + e) * (vec)exponent;
}

static float row_exp_sum(float *y, const float *x, float base, int64_t count)
{
    vec sum[SUMS / LANES];
    for (int64_t part = 0; part < SUMS / LANES; part++) sum[part] = (vec){0};
    int64_t i = 0;
    for (; i + SUMS <= count; i += SUMS)
        for (int64_t part = 0; part < SUMS / LANES; part++) {
            const vec e = exponential(load(x + i + part * LANES) - base);
            store(y + i + part * LANES, e);
            sum[part] += e;
        }
    if (i < count) { // the tail, padded with -inf, whose exponential is 0
        float edge[SUMS];
        for (int e = 0; e < SUMS; e++) edge[e] = i + e < count ? x[i + e] : -INFINITY;
        for (int64_t part = 0; part < SUMS / LANES; part++) {
            const vec e = exponential(load(edge + part * LANES) - base);
            store(edge + part * LANES, e);
            sum[part] += e;
        }
        memcpy(y + i, edge, (size_t)(count - i) * sizeof *y);
    }
    float parts[SUMS];
    for (int64_t part = 0; part < SUMS / LANES; part++) store(parts + part * LANES, sum[part]);
    for (int half = SUMS / 2; half > 0; half /= 2)
        for (int e = 0; e < half; e++) parts[e] += parts[e + half];
    return parts[0];
}

// Independent multiply-adds on registers alone, as many as the products keep in flight.
static float multiply_adds(int64_t rounds, int64_t *flops)
{
    vec acc[ROWS][VECTORS];
    UNROLL
    for (int r = 0; r < ROWS; r++) UNROLL
    for (int x = 0; x < VECTORS; x++) acc[r][x] = (vec){0} + (float)(r * VECTORS + x);
    vec factor = (vec){0} + 0.5f;
    for (int64_t i = 0; i < rounds; i++) {
        __asm__("" : "+m"(factor)); // so that no round can be computed ahead
        UNROLL
        for (int r = 0; r < ROWS; r++) UNROLL
        for (int x = 0; x < VECTORS; x++) acc[r][x] = acc[r][x] * factor + factor;
    }
    *flops = rounds * ROWS * VECTORS * LANES * 2;
    vec sum = (vec){0};
    UNROLL
    for (int r = 0; r < ROWS; r++) UNROLL
    for (int x = 0; x < VECTORS; x++) sum += acc[r][x];
    return sum[0];
}

const matmul_kernel KERNEL = {
    .instruction_set = INSTRUCTION_SET,
    .abt = abt,
    .ab = ab,
    .row_max = row_max,
    .row_exp_sum = row_exp_sum,
    .multiply_adds = multiply_adds,
};
