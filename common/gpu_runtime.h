// gpu_runtime.h: what the host asks of CUDA's runtime, or of the emulator's: calls with their
// errors turned into sentences, and tensors of 16 bits on the device.
#ifndef GPU_RUNTIME_H
#define GPU_RUNTIME_H

#include <stdlib.h>

#include "attention.h"
#include "half.h"
#include "tile.h"

namespace
{

// A sentence for what the runtime answered, and a status to act on. `call` says what was asked.
inline attention_status gpu_status(cudaError_t error, const char *call)
{
    if (error != cudaSuccess) (void)cudaGetLastError(); // or the runtime would tell it once more
    switch (static_cast<int>(error)) {
    case cudaSuccess: return ATTENTION_OK;
    case cudaErrorMemoryAllocation:
        return status_fail(ATTENTION_NO_MEMORY, "%s: the device has too little memory", call);
    case cudaErrorNoDevice: return status_fail(ATTENTION_NO_DEVICE, "there is no CUDA device");
    case cudaErrorInsufficientDriver:
        return status_fail(ATTENTION_NO_DEVICE,
                           "the NVIDIA driver is missing or older than this program's CUDA");
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
        return status_fail(
            ATTENTION_NO_DEVICE,
            "no kernel here was built for this card: see CUDA_ARCHS in the Makefile");
    default: return status_fail(ATTENTION_KERNEL_FAILED, "%s: %s", call, cudaGetErrorString(error));
    }
}

// Calls of the runtime whose failure matters go through this.
#define GPU_CHECK(call) gpu_status((call), #call)

inline attention_status gpu_attribute(int *value, cudaDeviceAttr attribute)
{
    int device = 0;
    const attention_status status = GPU_CHECK(cudaGetDevice(&device));
    if (status != ATTENTION_OK) return status;
    return GPU_CHECK(cudaDeviceGetAttribute(value, attribute, device));
}

// cudaLaunchKernel for a kernel that may begin before what the stream holds has ended, and waits
// for that itself (hopper.h: wait_for_launches_before); in clusters of so many neighbouring blocks.
template <class K>
cudaError_t launch_early(K *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                         cudaStream_t stream, unsigned cluster)
{
#ifdef __CUDACC__
    cudaLaunchAttribute with[2] = {};
    with[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    with[0].val.programmaticStreamSerializationAllowed = 1;
    with[1].id = cudaLaunchAttributeClusterDimension;
    with[1].val.clusterDim.x = cluster;
    with[1].val.clusterDim.y = with[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = with;
    config.numAttrs = cluster > 1 ? 2 : 1;
    return cudaLaunchKernelExC(&config, reinterpret_cast<const void *>(kernel), arguments);
#else
    return emulator::launch_kernel(kernel, grid, block, arguments, shared_bytes, stream, true,
                                   static_cast<int>(cluster));
#endif
}

// ---- host tensors to the device and back ------------------------------------------------------

// Tensors on the device; freed together.
struct gpu_tensors {
    void *q, *k, *v, *o, *lse, *counters, *steps;
    uint16_t *staging; // on the host, staged elements
};
constexpr int64_t staged = 1 << 20;

inline void gpu_tensors_free(gpu_tensors *g)
{
    void *const all[] = {g->q, g->k, g->v, g->o, g->lse, g->counters, g->steps};
    for (void *x : all)
        if (x) (void)cudaFree(x);
    free(g->staging);
}

inline attention_status gpu_upload(void *to, const float *from, int64_t count,
                                   attention_dtype dtype, uint16_t *staging)
{
    attention_status status = ATTENTION_OK;
    for (int64_t done = 0; done < count && status == ATTENTION_OK; done += staged) {
        const int64_t part = count - done < staged ? count - done : staged;
        for (int64_t i = 0; i < part; i++)
            staging[i] = dtype == DTYPE_FP16 ? fp16_from_float(from[done + i])
                                             : bf16_from_float(from[done + i]);
        status = GPU_CHECK(cudaMemcpy(static_cast<uint16_t *>(to) + done, staging,
                                      static_cast<size_t>(part) * 2, cudaMemcpyHostToDevice));
    }
    return status;
}

inline attention_status gpu_download(float *to, const void *from, int64_t count,
                                     attention_dtype dtype, uint16_t *staging)
{
    attention_status status = ATTENTION_OK;
    for (int64_t done = 0; done < count && status == ATTENTION_OK; done += staged) {
        const int64_t part = count - done < staged ? count - done : staged;
        status = GPU_CHECK(cudaMemcpy(staging, static_cast<const uint16_t *>(from) + done,
                                      static_cast<size_t>(part) * 2, cudaMemcpyDeviceToHost));
        for (int64_t i = 0; i < part && status == ATTENTION_OK; i++)
            to[done + i] =
                dtype == DTYPE_FP16 ? fp16_to_float(staging[i]) : bf16_to_float(staging[i]);
    }
    return status;
}

// Device memory for one call: the tensors and nothing else. Asked for before any is taken.
inline attention_status gpu_tensors_new(gpu_tensors *g, const attention_args *args, bool with_lse)
{
    const int64_t rows = args->batch * args->heads * args->seq;
    const size_t tensor_bytes = static_cast<size_t>(rows * args->head_dim) * 2;
    const size_t lse_bytes = with_lse ? static_cast<size_t>(rows) * sizeof(float) : 0;
    size_t free_bytes = 0, total_bytes = 0;
    attention_status status = GPU_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    if (status != ATTENTION_OK) return status;
    if (4 * tensor_bytes + lse_bytes > free_bytes)
        return status_fail(ATTENTION_NO_MEMORY,
                           "q, k, v, o and lse need %zu bytes on the device, which has %zu free",
                           4 * tensor_bytes + lse_bytes, free_bytes);
    void **const tensors[] = {&g->q, &g->k, &g->v, &g->o};
    for (int t = 0; t < 4 && status == ATTENTION_OK; t++)
        status = GPU_CHECK(cudaMalloc(tensors[t], tensor_bytes));
    if (status == ATTENTION_OK && with_lse) status = GPU_CHECK(cudaMalloc(&g->lse, lse_bytes));
    // 0xff is NaN: an element that the kernel does not write shows.
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaMemset(g->o, 0xff, tensor_bytes));
    if (status == ATTENTION_OK && with_lse) status = GPU_CHECK(cudaMemset(g->lse, 0xff, lse_bytes));
    if (status != ATTENTION_OK) return status;
    g->staging = static_cast<uint16_t *>(malloc(static_cast<size_t>(staged) * sizeof *g->staging));
    return g->staging ? ATTENTION_OK
                      : status_fail(ATTENTION_NO_MEMORY, "no memory to stage the tensors in");
}

} // namespace
#endif
