// stages.h: the entry points of the stages, as the Makefile renames them so that several can be
// linked into one program (-Dattention_forward=attention_forward_stage2, and so on).
#ifndef STAGES_H
#define STAGES_H

#include <stddef.h>

#include "attention.h"

#ifdef __cplusplus
extern "C" {
#endif

attention_function attention_forward_stage0, attention_forward_stage1, attention_forward_stage2;

// A CUDA stage's kernel in its four builds: by nvcc or with the emulator, each fast or tracing.
#define DECLARE_KERNEL(kernel)                                                                     \
    attention_function attention_forward_##kernel, attention_forward_##kernel##_traced,            \
        attention_forward_##kernel##_emulated, attention_forward_##kernel##_emulated_traced;       \
    attention_device_function attention_forward_device_##kernel,                                   \
        attention_forward_device_##kernel##_traced, attention_forward_device_##kernel##_emulated,  \
        attention_forward_device_##kernel##_emulated_traced

DECLARE_KERNEL(stage3);
DECLARE_KERNEL(stage3_scalar);
DECLARE_KERNEL(stage4);
DECLARE_KERNEL(stage5);
DECLARE_KERNEL(stage6);
DECLARE_KERNEL(stage7);

// One way a kernel was built. `traced` is the same source with its recorder listening: it alone
// fills counters and traces.
typedef struct {
    attention_function *forward, *traced;
    attention_device_function *device;
} kernel_build;

typedef struct {
    const char *name;           // "tensor"
    int64_t block_q, block_k;   // the tile it was compiled for, see attention_block_k
    kernel_build emulated, gpu; // gpu: NULLs in a program made without nvcc
    int only_on;                // the one compute capability it runs on, 90 for 9.0; 0: any
} stage_kernel;

#define KERNEL_BUILD(kernel)                                                                       \
    {                                                                                              \
        attention_forward_##kernel, attention_forward_##kernel##_traced,                           \
            attention_forward_device_##kernel                                                      \
    }
#ifdef WITH_CUDA
#define KERNEL_BUILD_GPU(kernel) KERNEL_BUILD(kernel)
#else
#define KERNEL_BUILD_GPU(kernel)                                                                   \
    {                                                                                              \
        NULL, NULL, NULL                                                                           \
    }
#endif

// The kernels of the CUDA stages, with their tiles.
#define STAGE5_BLOCK_K BLOCK_K_BY_HEAD_DIM(64, 48)
#define KERNEL(name, block_q, block_k, kernel, only_on)                                            \
    {                                                                                              \
        name, block_q, block_k, KERNEL_BUILD(kernel##_emulated), KERNEL_BUILD_GPU(kernel), only_on \
    }
#define STAGE3_TENSOR KERNEL("tensor", 128, 64, stage3, 0)
#define STAGE3_SCALAR KERNEL("scalar", 64, 32, stage3_scalar, 0)
#define STAGE4_TENSOR KERNEL("tensor", 128, 64, stage4, 0)
#define STAGE5_TENSOR KERNEL("tensor", 128, STAGE5_BLOCK_K, stage5, 0)
#define STAGE6_WGMMA  KERNEL("wgmma", 64, 128, stage6, 90)
#define STAGE7_WGMMA  KERNEL("wgmma", 64, 128, stage7, 90)

// The bound of stage 4's key loop: see stage4_causal_skip/attention.cu.
int64_t attention_keys_end_stage4_emulated(int64_t i, int64_t rows, int64_t n, bool causal);

#ifdef __cplusplus
}
#endif
#endif
