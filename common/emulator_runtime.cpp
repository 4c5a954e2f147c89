// emulator_runtime.cpp: launches, memory and errors, as CUDA's runtime would do them.
#include "emulator_runtime.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>
#include <unistd.h>
#include <vector>

#include "emulator_block.h"
#include "tensor.h"

namespace emulator
{

static thread_local launch_report report_of_last;
static thread_local char message_of_last[512];
static thread_local cudaError_t last_error;

settings &current_settings()
{
    static settings s;
    return s;
}

launch_report last_launch()
{
    return report_of_last;
}

int64_t launch_request::take_block()
{
    if (stop) return -1;
    const int64_t index = cluster * next++;
    return index < blocks ? index : -1;
}

void launch_request::out_of_memory()
{
    const std::lock_guard<std::mutex> hold(lock);
    no_memory = stop = true;
}

void launch_request::finish(const launch_report &part, const char *text, int64_t block)
{
    const std::lock_guard<std::mutex> hold(lock);
    report.blocks += part.blocks;
    report.switches += part.switches;
    report.collectives += part.collectives;
    report.shared_accesses += part.shared_accesses;
    report.bank_conflicts += part.bank_conflicts;
    if (!text) return;
    stop = true;
    if (failed_block >= 0 && failed_block < block) return;
    failed_block = block;
    snprintf(message, sizeof message, "%s", text);
}

static int shared_limit()
{
    const int compute_capability = current_settings().compute_capability;
    return current_settings().shared_bytes ? current_settings().shared_bytes
           : compute_capability < 80       ? 64 << 10
           : compute_capability < 86       ? 163 << 10
           : compute_capability < 90       ? 99 << 10
                                           : 227 << 10;
}

static std::mutex opt_in_lock;
static std::map<const void *, size_t> opt_in; // what each kernel may use beyond 48 KiB

cudaError_t allow_shared_bytes(const void *kernel, int bytes)
{
    if (bytes < 0 || bytes > shared_limit()) return last_error = cudaErrorInvalidValue;
    const std::lock_guard<std::mutex> hold(opt_in_lock);
    opt_in[kernel] = static_cast<size_t>(bytes);
    return cudaSuccess;
}

static bool launchable(const void *kernel, dim3 grid, dim3 block, size_t shared_bytes)
{
    const int64_t threads = int64_t{block.x} * block.y * block.z;
    if (threads < 32 || threads > 1024 || threads % 32) return false; // whole warps only
    if (!grid.x || !grid.y || !grid.z || grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535)
        return false;
    const std::lock_guard<std::mutex> hold(opt_in_lock);
    const auto allowed = opt_in.find(kernel);
    return shared_bytes <= (allowed == opt_in.end() ? 48 << 10 : allowed->second);
}

cudaError_t launch(const void *kernel, dim3 grid, dim3 block, size_t shared_bytes,
                   void (*call)(const void *, void **), void **arguments, bool early, int cluster)
{
    if (!launchable(kernel, grid, block, shared_bytes) || cluster < 1 || cluster > max_cluster ||
        grid.x % static_cast<unsigned>(cluster) ||
        (cluster > 1 && block.x * block.y * block.z * static_cast<unsigned>(cluster) > 1024))
        return last_error = cudaErrorInvalidConfiguration;
    launch_request request;
    request.grid = grid;
    request.block = block;
    request.shared_bytes = shared_bytes;
    request.cluster = cluster;
    request.call = call;
    request.kernel = kernel;
    request.arguments = arguments;
    request.seed = current_settings().seed;
    request.late_warp = current_settings().late_warp;
    request.early = early;
    request.blocks = int64_t{grid.x} * grid.y * grid.z;

    int64_t cores = current_settings().threads;
    if (cores < 1) cores = std::thread::hardware_concurrency();
    if (cores < 1) cores = 1;
    if (cores > request.blocks / cluster) cores = request.blocks / cluster;
    std::vector<std::thread> helpers;
    for (int64_t i = 1; i < cores; i++) helpers.emplace_back([&] { run_blocks(request); });
    run_blocks(request);
    for (std::thread &helper : helpers) helper.join();

    report_of_last = request.report;
    if (request.no_memory) return last_error = cudaErrorMemoryAllocation;
    if (request.failed_block < 0) return cudaSuccess;
    snprintf(message_of_last, sizeof message_of_last, "%s", request.message);
    return last_error = cudaErrorLaunchFailure;
}

} // namespace emulator

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    *pointer = nullptr;
    float *tensor;
    const int64_t floats =
        bytes > INT64_MAX ? INT64_MAX : static_cast<int64_t>(bytes ? (bytes - 1) / 4 + 1 : 1);
    if (tensor_new("device memory", 1, 1, 1, floats, &tensor) != ATTENTION_OK)
        return emulator::last_error = cudaErrorMemoryAllocation;
    *pointer = tensor;
    memset(*pointer, 0xff, bytes); // NaN: what is read before it is written shows
    return cudaSuccess;
}

cudaError_t cudaFree(void *pointer)
{
    tensor_free(static_cast<float *>(pointer));
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind)
{
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    memset(to, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    *free_bytes = page * static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES));
    *total_bytes = page * static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int)
{
    if (attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin) *value = emulator::shared_limit();
    if (attribute == cudaDevAttrMultiProcessorCount) *value = 4; // small grids try every choice
    return cudaSuccess;
}

cudaError_t cudaGetLastError()
{
    const cudaError_t error = emulator::last_error;
    emulator::last_error = cudaSuccess;
    return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaSuccess; // launches return when they are done
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorLaunchFailure: return emulator::message_of_last;
    default: return "invalid argument";
    }
}
