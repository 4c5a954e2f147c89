// gpu_device.h: the GPU at hand, for programs in C. gpu_device.cu answers in programs made with
// nvcc; gpu_absent.c in those made without.
#ifndef GPU_DEVICE_H
#define GPU_DEVICE_H

#include "attention.h"
#include "timing.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    char name[256];
    int compute_capability; // 90 for 9.0
    int multiprocessors;
    int driver, runtime; // CUDA versions, 13000 for 13.0
} gpu_device;

// Finds the current device and runs an empty kernel on it. ATTENTION_NO_DEVICE, with the reason: no
// card, no driver or an old one, kernels built for other architectures, or no nvcc when this was
// made.
attention_status gpu_device_open(gpu_device *device);

// Times `forward` on q, k, v [batch, heads, seq, head_dim], host floats, by events on a stream:
// once cold, `warm_up` times untimed, then `repeats` times. *extra_bytes: device memory that the
// calls took beyond q, k, v, o and lse and still held afterwards.
attention_status gpu_device_time(attention_device_function *forward, const float *q, const float *k,
                                 const float *v, const attention_args *args, int warm_up,
                                 int repeats, timing_result *time, int64_t *extra_bytes);

#ifdef __cplusplus
}
#endif
#endif
