// matmul_kernel.h: what one compilation of matmul_kernel.c offers; matmul.c chooses among them.
#ifndef MATMUL_KERNEL_H
#define MATMUL_KERNEL_H

#include <stdint.h>

typedef struct {
    const char *instruction_set;
    void (*abt)(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb,
                int64_t rows, int64_t cols, int64_t depth, float scale);
    void (*ab)(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb,
               int64_t rows, int64_t cols, int64_t depth);
    float (*row_max)(const float *x, int64_t count);
    float (*row_exp_sum)(float *y, const float *x, float base, int64_t count);
    float (*multiply_adds)(int64_t rounds, int64_t *flops); // a number nobody needs, and the FLOPs
} matmul_kernel;

extern const matmul_kernel matmul_kernel_base, matmul_kernel_avx2, matmul_kernel_avx512;

#endif
