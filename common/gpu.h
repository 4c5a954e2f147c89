// gpu.h: the host side of a CUDA stage: checks, the launch, and attention_forward on host tensors
// of float by way of device tensors of 16 bits. A stage includes it once and defines `kernels`;
// this header then defines attention_forward and attention_forward_device, which are alike in all
// of them.
#ifndef GPU_H
#define GPU_H

#include "gpu_runtime.h"
#include "recorder.h"

namespace
{

// attention_check_cuda, and in the fast build no wish for counters or a trace.
inline attention_status gpu_check_args(const attention_args *args, int block_q, int block_k)
{
#ifndef TRACE
    if (args->counters || args->trace)
        return status_fail(ATTENTION_BAD_ARGUMENT,
                           "counters and traces come from the tracing build of a kernel");
#endif
    return attention_check_cuda(args, block_q, block_k);
}

// The same for device pointers: none is NULL, and each is a multiple of 16.
inline attention_status gpu_check(const void *q, const void *k, const void *v, const void *o,
                                  const attention_args *args, int block_q, int block_k)
{
    attention_status status =
        attention_check(static_cast<const float *>(q), static_cast<const float *>(k),
                        static_cast<const float *>(v), static_cast<const float *>(o), args);
    if (status == ATTENTION_OK) status = gpu_check_args(args, block_q, block_k);
    const void *const tensors[] = {q, k, v, o};
    for (int t = 0; t < 4 && status == ATTENTION_OK; t++)
        if (reinterpret_cast<uintptr_t>(tensors[t]) % 16)
            status = status_fail(ATTENTION_BAD_ARGUMENT,
                                 "%c does not start at a multiple of 16 bytes", "qkvo"[t]);
    return status;
}

// One call of attention_forward_device.
struct gpu_call {
    const void *q, *k, *v; // [batch, heads, seq, head_dim], 16-bit, on the device
    void *o;
    float *lse; // [batch, heads, seq] or null
    const attention_args *args;
    cudaStream_t stream;
};

// Launches a kernel(q, k, v, o, lse, n, causal, scale, record) over all tiles of block_q queries of
// all heads, a block of `threads` threads each. `tensors`: what the kernel takes for q, k and v, if
// not their pointers. With `most` there are no more blocks than that, and they stay until all is
// done: the kernel takes one argument more, the heads of all batches, and is launched early, in
// clusters of so many blocks, each with tiles of block_q queries that follow one another.
template <class K>
attention_status gpu_launch(K *kernel, int block_q, int threads, uint32_t shared_bytes,
                            const gpu_call &call, void *const tensors[3] = nullptr, int most = 0,
                            int cluster = 1)
{
    const attention_args *args = call.args;
    const void *qkv[] = {call.q, call.k, call.v};
    void *o = call.o;
    float *lse = call.lse;
    int64_t n = args->seq;
    bool causal = args->causal;
    float scale = args->scale;
    recorder record(args);
    int planes = static_cast<int>(args->batch * args->heads);
    void *arguments[] = {&qkv[0], &qkv[1], &qkv[2], &o,      &lse,
                         &n,      &causal, &scale,  &record, &planes};
    for (int t = 0; tensors && t < 3; t++) arguments[t] = tensors[t];
    const int64_t clusters = args->batch * args->heads * ((n - 1) / (cluster * block_q) + 1);
    const int64_t blocks = clusters * cluster;
    int allowed = 0;
    cudaFuncAttributes built;
    if (n > INT32_MAX - cluster * block_q) // no position of a tile may be more
        return status_fail(ATTENTION_BAD_ARGUMENT, "seq %lld: kernels count positions in 31 bits",
                           static_cast<long long>(n));
    if (blocks > INT32_MAX)
        return status_fail(ATTENTION_BAD_ARGUMENT, "%lld query tiles: a grid holds 2147483647",
                           static_cast<long long>(blocks));
    attention_status status = GPU_CHECK(cudaFuncGetAttributes(&built, kernel));
    // Of the kernel, not of the card: a newer card may be running code made for Turing.
    if (status == ATTENTION_OK && args->dtype == DTYPE_BF16 && built.ptxVersion < 80)
        status = status_fail(ATTENTION_NO_DEVICE,
                             "bf16 needs a kernel built for compute capability 8.0 or newer; use "
                             "fp16 on this card");
    if (status == ATTENTION_OK)
        status = gpu_attribute(&allowed, cudaDevAttrMaxSharedMemoryPerBlockOptin);
    if (status == ATTENTION_OK && shared_bytes > static_cast<uint32_t>(allowed))
        status =
            status_fail(ATTENTION_NO_DEVICE,
                        "the kernel needs %u bytes of shared memory a block; this card allows %d",
                        shared_bytes, allowed);
    if (status == ATTENTION_OK)
        status = GPU_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                static_cast<int>(shared_bytes)));
    if (most) most = most < cluster ? cluster : most / cluster * cluster;
    const dim3 grid(static_cast<unsigned>(most && blocks > most ? most : blocks));
    const dim3 block(static_cast<unsigned>(threads));
    if (status != ATTENTION_OK) return status;
    return gpu_status(
        most ? launch_early(kernel, grid, block, arguments, shared_bytes, call.stream,
                            static_cast<unsigned>(cluster))
             : cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, call.stream),
        "the launch");
}

// What a stage compiled: its tile, and a launch for every type and head dimension.
struct gpu_kernels {
    int block_q, block_k; // see attention_block_k
    attention_status (*fp16_64)(const gpu_call &), (*fp16_128)(const gpu_call &);
    attention_status (*bf16_64)(const gpu_call &), (*bf16_128)(const gpu_call &);
};

// attention_forward_device of a CUDA stage: checks, and the launch that the call needs.
inline attention_status gpu_forward_device(const gpu_kernels &kernels, const gpu_call &call)
{
    const attention_args *args = call.args;
    const attention_status status =
        gpu_check(call.q, call.k, call.v, call.o, args, kernels.block_q, kernels.block_k);
    if (status != ATTENTION_OK) return status;
    if (args->dtype == DTYPE_FP16)
        return args->head_dim == 64 ? kernels.fp16_64(call) : kernels.fp16_128(call);
    return args->head_dim == 64 ? kernels.bf16_64(call) : kernels.bf16_128(call);
}

// ---- from the host and back ---------------------------------------------------------------------

#ifdef TRACE
// The counters and the trace, to the device before the kernel and back after it.
inline attention_status gpu_recording_new(gpu_tensors *g, attention_args *args, rebase_trace *trace)
{
    const size_t steps = trace->steps ? static_cast<size_t>(trace->capacity) : 0;
    attention_status status = GPU_CHECK(cudaMalloc(&g->counters, sizeof *args->counters));
    if (status == ATTENTION_OK)
        status = GPU_CHECK(cudaMemset(g->counters, 0, sizeof *args->counters));
    if (status == ATTENTION_OK && steps)
        status = GPU_CHECK(cudaMalloc(&g->steps, steps * sizeof *trace->steps));
    if (status == ATTENTION_OK && steps)
        status = GPU_CHECK(cudaMemset(g->steps, 0, steps * sizeof *trace->steps));
    args->counters = static_cast<attention_counters *>(g->counters);
    args->trace = steps ? trace : nullptr;
    trace->steps = static_cast<rebase_step *>(g->steps);
    return status;
}

inline attention_status gpu_recording_read(const gpu_tensors *g, const attention_args *args)
{
    attention_status status = ATTENTION_OK;
    if (args->counters)
        status = GPU_CHECK(cudaMemcpy(args->counters, g->counters, sizeof *args->counters,
                                      cudaMemcpyDeviceToHost));
    rebase_trace *trace = args->trace;
    if (status != ATTENTION_OK || !trace) return status;
    status = GPU_CHECK(cudaMemcpy(trace->steps, g->steps,
                                  static_cast<size_t>(trace->capacity) * sizeof *trace->steps,
                                  cudaMemcpyDeviceToHost));
    while (trace->count < trace->capacity && trace->steps[trace->count].keys > 0) trace->count++;
    return status;
}
#endif

// attention_forward of a CUDA stage: host tensors in and out. Holds four 16-bit tensors and lse on
// the device while it runs.
inline attention_status gpu_forward(const gpu_kernels &kernels, const float *q, const float *k,
                                    const float *v, float *o, float *lse,
                                    const attention_args *args)
{
    attention_status status = attention_check(q, k, v, o, args);
    if (status == ATTENTION_OK) status = gpu_check_args(args, kernels.block_q, kernels.block_k);
    if (status != ATTENTION_OK) return status;
#ifndef __CUDACC__
    emulator::current_settings().threads = args->threads;
#endif
    const int64_t rows = args->batch * args->heads * args->seq, count = rows * args->head_dim;
    attention_args device_args = *args;
    gpu_tensors g = {};
    status = gpu_tensors_new(&g, args, lse != nullptr);
    if (status == ATTENTION_OK) status = gpu_upload(g.q, q, count, args->dtype, g.staging);
    if (status == ATTENTION_OK) status = gpu_upload(g.k, k, count, args->dtype, g.staging);
    if (status == ATTENTION_OK) status = gpu_upload(g.v, v, count, args->dtype, g.staging);
#ifdef TRACE
    rebase_trace trace = args->trace ? *args->trace : rebase_trace{};
    if (status == ATTENTION_OK) status = gpu_recording_new(&g, &device_args, &trace);
#endif
    if (status == ATTENTION_OK)
        status = gpu_forward_device(
            kernels, {g.q, g.k, g.v, g.o, static_cast<float *>(g.lse), &device_args, nullptr});
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaStreamSynchronize(nullptr));
    if (status == ATTENTION_OK) status = gpu_download(o, g.o, count, args->dtype, g.staging);
    if (status == ATTENTION_OK && lse)
        status = GPU_CHECK(cudaMemcpy(lse, g.lse, static_cast<size_t>(rows) * sizeof *lse,
                                      cudaMemcpyDeviceToHost));
#ifdef TRACE
    if (status == ATTENTION_OK) status = gpu_recording_read(&g, args);
#endif
    gpu_tensors_free(&g);
    return status;
}

// Every stage that includes this header defines this one; below are its entry points.
extern const gpu_kernels kernels;

} // namespace

attention_status attention_forward(const float *q, const float *k, const float *v, float *o,
                                   float *lse, const attention_args *args)
{
    return gpu_forward(kernels, q, k, v, o, lse, args);
}

attention_status attention_forward_device(const void *q, const void *k, const void *v, void *o,
                                          float *lse, const attention_args *args,
                                          cudaStream_t stream)
{
    return gpu_forward_device(kernels, {q, k, v, o, lse, args, stream});
}
#endif
