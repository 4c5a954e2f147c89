// matmul.h: the dense arithmetic every CPU stage stands on, and nothing about attention:
// two small matrix products, a row's maximum, and a row's shifted exponentials with their sum.
//
// matmul_kernel.c is compiled once for each instruction set; the first call picks the best one
// the processor has. All functions are single-threaded and give the same bits every time.
#ifndef MATMUL_H
#define MATMUL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// c = scale (a b^T), row-major with leading dimensions ldc, lda, ldb; 1 <= depth <= 256.
//   a [rows, depth], b [cols, depth], c [rows, cols]
void matmul_abt(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb,
                int64_t rows, int64_t cols, int64_t depth, float scale);

// c = c + a b, summing a b by itself over stretches of at most 256 before it is added to c.
//   a [rows, depth], b [depth, cols], c [rows, cols]
void matmul_ab(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb,
               int64_t rows, int64_t cols, int64_t depth);

// The largest x[0 .. count - 1] that is not NaN; -inf if there is none.
float row_max(const float *x, int64_t count);

// y[i] = exp(x[i] - base), within 2 units in the last place; returns the sum of y, kept as 16
// partial sums. exp(0) is exactly 1; results below 2^-126 are 0; NaN stays NaN. y may be x.
float row_exp_sum(float *y, const float *x, float base, int64_t count);

// Fused multiply-adds a second, in FLOP/s (two an element), that this thread reaches in registers.
double matmul_peak_flops(void);

// Which of the compiled instruction sets is in use: "AVX-512", "AVX2", "NEON", "128-bit vectors".
const char *matmul_instruction_set(void);

#ifdef __cplusplus
}
#endif
#endif
