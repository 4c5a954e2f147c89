// baselines.h: what the stages are compared with on a GPU. For bench/.
#ifndef BASELINES_H
#define BASELINES_H

#include "attention.h"

#ifdef __cplusplus
extern "C" {
#endif

// Attention as it is written: S and P whole in device memory, cuBLAS for the products, a softmax
// kernel between. In fp32 the tensors are float (no TF32), in fp16 everything is 16-bit but the
// sums. And tiled attention with a launch for every step of every tile: tiles without fusion.
attention_device_function explicit_fp32, explicit_fp16, tiled_launches;

// Device memory each needs beyond q, k, v and o; the driver allocates it and hands it over.
int64_t explicit_fp32_scratch(const attention_args *args);
int64_t explicit_fp16_scratch(const attention_args *args);
int64_t tiled_launches_scratch(const attention_args *args);
void baselines_use(void *scratch);

// cuBLAS's rate for the fp16 product of the two n x n matrices at `normals`, FLOP/s, best of
// twenty; also raises the clocks. Zeros or constants would run too fast. 0 if it could not be had.
double matmul_fp16_flops(int n, const void *normals, struct CUstream_st *stream);

void baselines_close(void);

#ifdef __cplusplus
}
#endif
#endif
