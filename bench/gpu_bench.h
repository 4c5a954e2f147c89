// gpu_bench.h: one method on one shape, timed on the GPU. For bench.c.
#ifndef GPU_BENCH_H
#define GPU_BENCH_H

#include "attention.h"
#include "row.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *name, *stage, *dtype;
    int64_t block_q, block_k, longest; // longest: the largest seq, 0 for any
    attention_device_function *forward;
    int64_t (*scratch)(const attention_args *args); // bytes beyond q, k, v, o; NULL for none
    const char *only_on; // the one compute capability it runs on; NULL for any
} gpu_method;

extern const gpu_method gpu_methods[];
extern const int gpu_method_count;

// Opens the device, draws the pool of inputs for tensors of up to `most` elements, measures the
// copy bandwidth and cuBLAS's rate, and fills what every row has in common.
attention_status gpu_bench_open(bench_row *common, int64_t most);

// Checks the method against float64 on sampled rows, then times it; sets what is measured in *row,
// whose shape is set, and its status. Fails only if the device is lost.
attention_status gpu_bench_row(const gpu_method *method, bench_row *row);

void gpu_bench_close(void);

#ifdef __cplusplus
}
#endif
#endif
