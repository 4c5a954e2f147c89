// gpu_device.cu: gpu_device.h by CUDA's runtime. Compiled by nvcc alone.
#include "gpu_device.h"

#include <algorithm>
#include <stdio.h>
#include <vector>

#include "gpu_runtime.h"

namespace
{

__global__ void empty_kernel()
{
}

attention_status run_empty_kernel()
{
    void *none[] = {nullptr};
    attention_status status =
        GPU_CHECK(cudaLaunchKernel(empty_kernel, dim3(1), dim3(32), none, 0, nullptr));
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaStreamSynchronize(nullptr));
    return status;
}

struct timer {
    cudaEvent_t start, stop;
};

attention_status time_once(timer t, attention_device_function *forward, const gpu_tensors &g,
                           const attention_args *args, double *seconds)
{
    float ms = 0;
    attention_status status = GPU_CHECK(cudaEventRecord(t.start, nullptr));
    if (status == ATTENTION_OK)
        status = forward(g.q, g.k, g.v, g.o, static_cast<float *>(g.lse), args, nullptr);
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaEventRecord(t.stop, nullptr));
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaEventSynchronize(t.stop));
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaEventElapsedTime(&ms, t.start, t.stop));
    *seconds = 1e-3 * static_cast<double>(ms);
    return status;
}

attention_status time_all(timer t, attention_device_function *forward, const gpu_tensors &g,
                          const attention_args *args, int warm_up, int repeats, timing_result *time)
{
    double seconds = 0;
    attention_status status = time_once(t, forward, g, args, &time->first);
    for (int i = 0; i < warm_up && status == ATTENTION_OK; i++)
        status = time_once(t, forward, g, args, &seconds);
    std::vector<double> all;
    for (int i = 0; i < repeats && status == ATTENTION_OK; i++) {
        status = time_once(t, forward, g, args, &seconds);
        all.push_back(seconds);
    }
    if (status != ATTENTION_OK || all.empty()) return status;
    std::sort(all.begin(), all.end());
    time->median = all[all.size() / 2];
    time->min = all.front();
    time->max = all.back();
    time->repeats = repeats;
    return status;
}

} // namespace

attention_status gpu_device_open(gpu_device *device)
{
    int count = 0, current = 0;
    attention_status status = GPU_CHECK(cudaGetDeviceCount(&count));
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaGetDevice(&current));
    cudaDeviceProp properties;
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaGetDeviceProperties(&properties, current));
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaDriverGetVersion(&device->driver));
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaRuntimeGetVersion(&device->runtime));
    if (status != ATTENTION_OK) return status;
    snprintf(device->name, sizeof device->name, "%s", properties.name);
    device->compute_capability = 10 * properties.major + properties.minor;
    device->multiprocessors = properties.multiProcessorCount;
    if (device->compute_capability < 75)
        return status_fail(ATTENTION_NO_DEVICE,
                           "%s has compute capability %d.%d; the tensor-core kernels need 7.5",
                           device->name, properties.major, properties.minor);
    return run_empty_kernel();
}

attention_status gpu_device_time(attention_device_function *forward, const float *q, const float *k,
                                 const float *v, const attention_args *args, int warm_up,
                                 int repeats, timing_result *time, int64_t *extra_bytes)
{
    const int64_t count = args->batch * args->heads * args->seq * args->head_dim;
    gpu_tensors g = {};
    timer t = {};
    size_t before = 0, after = 0, total = 0;
    *time = timing_result{};
    attention_status status = gpu_tensors_new(&g, args, true);
    if (status == ATTENTION_OK) status = gpu_upload(g.q, q, count, args->dtype, g.staging);
    if (status == ATTENTION_OK) status = gpu_upload(g.k, k, count, args->dtype, g.staging);
    if (status == ATTENTION_OK) status = gpu_upload(g.v, v, count, args->dtype, g.staging);
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaEventCreate(&t.start));
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaEventCreate(&t.stop));
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaMemGetInfo(&before, &total));
    if (status == ATTENTION_OK) status = time_all(t, forward, g, args, warm_up, repeats, time);
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaMemGetInfo(&after, &total));
    *extra_bytes = static_cast<int64_t>(before) - static_cast<int64_t>(after);
    if (t.start) (void)cudaEventDestroy(t.start);
    if (t.stop) (void)cudaEventDestroy(t.stop);
    gpu_tensors_free(&g);
    return status;
}
