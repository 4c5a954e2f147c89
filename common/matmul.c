#include "matmul.h"

#include "matmul_kernel.h"
#include "timing.h"

static const matmul_kernel *choose(void)
{
#if defined(__x86_64__) && !defined(ARCH_FIXED)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
        return &matmul_kernel_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &matmul_kernel_avx2;
#endif
    return &matmul_kernel_base;
}

static const matmul_kernel *kernel;

// Before main, so that no thread ever races to choose.
__attribute__((constructor)) static void choose_once(void)
{
    kernel = choose();
}

void matmul_abt(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb,
                int64_t rows, int64_t cols, int64_t depth, float scale)
{
    kernel->abt(c, ldc, a, lda, b, ldb, rows, cols, depth, scale);
}

void matmul_ab(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb,
               int64_t rows, int64_t cols, int64_t depth)
{
    kernel->ab(c, ldc, a, lda, b, ldb, rows, cols, depth);
}

float row_max(const float *x, int64_t count)
{
    return kernel->row_max(x, count);
}

float row_exp_sum(float *y, const float *x, float base, int64_t count)
{
    return kernel->row_exp_sum(y, x, base, count);
}

double matmul_peak_flops(void)
{
    double best = 0;
    for (int attempt = 0; attempt < 5; attempt++) {
        int64_t flops;
        const double start = timing_now();
        volatile float keep = kernel->multiply_adds(500000, &flops);
        (void)keep;
        const double rate = (double)flops / (timing_now() - start);
        if (rate > best) best = rate;
    }
    return best;
}

const char *matmul_instruction_set(void)
{
    return kernel->instruction_set;
}
