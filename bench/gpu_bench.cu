// gpu_bench.cu: how a method is timed on the GPU. bench/README.md says why so.
#include "gpu_bench.h"

#include <algorithm>
#include <math.h>
#include <stdio.h>
#include <vector>

#include "baselines.h"
#include "gpu_device.h"
#include "gpu_runtime.h"
#include "oracle.h"
#include "random.h"
#include "stages.h"
#include "timing.h"

const gpu_method gpu_methods[] = {
    {"explicit_fp32", "0", "fp32", 0, 0, 0, explicit_fp32, explicit_fp32_scratch, nullptr},
    {"explicit_fp16", "0", "fp16", 0, 0, 0, explicit_fp16, explicit_fp16_scratch, nullptr},
    {"tiled_launches", "2", "fp16", 128, 128, 2048, tiled_launches, tiled_launches_scratch,
     nullptr},
    {"stage3_scalar", "3", "fp16", 64, 32, 0, attention_forward_device_stage3_scalar, nullptr,
     nullptr},
    {"stage3", "3", "fp16", 128, 64, 0, attention_forward_device_stage3, nullptr, nullptr},
    {"stage4", "4", "fp16", 128, 64, 0, attention_forward_device_stage4, nullptr, nullptr},
    {"stage5", "5", "fp16", 128, STAGE5_BLOCK_K, 0, attention_forward_device_stage5, nullptr,
     nullptr},
    {"stage6", "6", "fp16", 64, 128, 0, attention_forward_device_stage6, nullptr, "9.0"},
    {"stage7", "7", "fp16", 64, 128, 0, attention_forward_device_stage7, nullptr, "9.0"},
};
const int gpu_method_count = sizeof gpu_methods / sizeof *gpu_methods;

namespace
{

// Normals, repeated: `base_count` of them, prime, so that no two tensors are alike.
constexpr int64_t base_count = 16777213;
std::vector<float> base; // on the host, rounded to fp16
uint16_t *pool;          // on the device, pool_count
float *pool_fp32;        // the same as float, made when first needed
int64_t pool_count;
cudaStream_t stream;
double peak_flops;

__global__ void widen(float *to, const __half *from, int64_t count)
{
    for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count;
         i += int64_t{gridDim.x} * blockDim.x)
        to[i] = __half2float(from[i]);
}

// Keeps the device waiting while the host gets ahead: else a timed call would begin with the host's
// own time to launch it. torch_sdpa.py does the same.
constexpr int64_t head_start = 200000;                   // cycles
constexpr double head_start_ms = 1e3 * head_start / 2e9; // and at 2 GHz, or more

__global__ void wait_cycles(int64_t cycles)
{
    const int64_t start = clock64();
    while (clock64() - start < cycles) continue;
}

// FLOPs a clock of one multiprocessor's tensor cores, fp16 with fp32 sums; 0: not known here.
int tensor_flops_a_clock(int compute_capability)
{
    switch (compute_capability) {
    case 75: return 1024;
    case 80: return 2048;
    case 86:
    case 89: return 1024;
    case 90: return 4096;
    default: return 0;
    }
}

// One call's tensors: windows of the pool, another one each time.
struct window {
    const void *q, *k, *v;
    int64_t at[3]; // in the pool, elements
};

window window_of(int turn, int64_t count, bool fp32)
{
    window w;
    const int64_t room = pool_count - count + 1;
    const void **const tensors[] = {&w.q, &w.k, &w.v};
    for (int t = 0; t < 3; t++) {
        // 3 turns + t apart by a tensor, wrapped: far enough for the cache to forget.
        w.at[t] = (3 * turn + t) * count % room / 8 * 8;
        if (count > room) w.at[t] = (3 * turn + t) * 1000003 % room / 8 * 8;
        *tensors[t] = fp32 ? static_cast<const void *>(pool_fp32 + w.at[t])
                           : static_cast<const void *>(pool + w.at[t]);
    }
    return w;
}

// A plane of a tensor as the host knows it.
std::vector<float> plane_of(int64_t at, int64_t plane, int64_t elements)
{
    std::vector<float> x(static_cast<size_t>(elements));
    for (int64_t i = 0; i < elements; i++)
        x[static_cast<size_t>(i)] =
            base[static_cast<size_t>((at + plane * elements + i) % base_count)];
    return x;
}

// Largest error of o against float64 over 16 rows of the first, the middle and the last plane.
attention_status check(const window &w, const void *o, const attention_args &args, bool fp32,
                       double *max_abs_err)
{
    const int64_t n = args.seq, d = args.head_dim, planes = args.batch * args.heads;
    const int64_t chosen[] = {0, planes / 2, planes - 1};
    double worst = 0;
    for (int64_t plane : chosen) {
        const std::vector<float> q = plane_of(w.at[0], plane, n * d),
                                 k = plane_of(w.at[1], plane, n * d),
                                 v = plane_of(w.at[2], plane, n * d);
        std::vector<float> own(static_cast<size_t>(n * d));
        if (fp32) {
            const attention_status status =
                GPU_CHECK(cudaMemcpy(own.data(), static_cast<const float *>(o) + plane * n * d,
                                     own.size() * 4, cudaMemcpyDeviceToHost));
            if (status != ATTENTION_OK) return status;
        } else {
            std::vector<uint16_t> bits(own.size());
            const attention_status status =
                GPU_CHECK(cudaMemcpy(bits.data(), static_cast<const uint16_t *>(o) + plane * n * d,
                                     bits.size() * 2, cudaMemcpyDeviceToHost));
            if (status != ATTENTION_OK) return status;
            for (size_t i = 0; i < own.size(); i++) own[i] = fp16_to_float(bits[i]);
        }
        std::vector<double> scratch(static_cast<size_t>(n));
        attention_args one = args;
        one.batch = one.heads = 1;
        for (int r = 0; r < 16; r++) {
            const int64_t i = n > 1 ? r * (n - 1) / 15 : 0; // the last row among them
            oracle_row exact;
            oracle_compute_row(&exact, scratch.data(), q.data(), k.data(), v.data(), &one, 0, i);
            for (int64_t x = 0; x < d; x++) {
                const double error =
                    fabs(static_cast<double>(own[static_cast<size_t>(i * d + x)]) - exact.o[x]);
                worst = error <= worst ? worst : error; // NaN is taken over
                if (isnan(error)) worst = INFINITY;
            }
        }
    }
    *max_abs_err = worst;
    return ATTENTION_OK;
}

struct call {
    const gpu_method *method;
    attention_args args;
    void *o;
    bool fp32;
};

attention_status run(const call &c, int turn)
{
    const int64_t count = c.args.batch * c.args.heads * c.args.seq * c.args.head_dim;
    const window w = window_of(turn, count, c.fp32);
    return c.method->forward(w.q, w.k, w.v, c.o, nullptr, &c.args, stream);
}

attention_status timed(const call &c, int turn, cudaEvent_t start, cudaEvent_t stop, double *ms,
                       double *host_ms)
{
    float elapsed = 0;
    wait_cycles<<<1, 1, 0, stream>>>(head_start);
    attention_status status = GPU_CHECK(cudaEventRecord(start, stream));
    const double before = timing_now();
    if (status == ATTENTION_OK) status = run(c, turn);
    *host_ms = 1e3 * (timing_now() - before);
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaEventRecord(stop, stream));
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaEventSynchronize(stop));
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaEventElapsedTime(&elapsed, start, stop));
    *ms = static_cast<double>(elapsed);
    return status;
}

double median(std::vector<double> x)
{
    std::sort(x.begin(), x.end());
    return 0.5 * (x[(x.size() - 1) / 2] + x[x.size() / 2]);
}

// Twenty calls in a CUDA graph: device time without the host's launches, and how many there are.
attention_status graph(const call &c, cudaEvent_t start, cudaEvent_t stop, bench_row *row)
{
    enum { CALLS = 20, REPLAYS = 9 };
    cudaGraph_t captured = nullptr;
    cudaGraphExec_t ready = nullptr;
    attention_status status =
        GPU_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    const int calls = row->seq <= 2048 ? CALLS : 1;
    for (int i = 0; i < calls && status == ATTENTION_OK; i++) status = run(c, i);
    const attention_status ended = GPU_CHECK(cudaStreamEndCapture(stream, &captured));
    if (status == ATTENTION_OK) status = ended;
    size_t nodes = 0;
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaGraphGetNodes(captured, nullptr, &nodes));
    std::vector<cudaGraphNode_t> all(nodes);
    if (status == ATTENTION_OK && nodes)
        status = GPU_CHECK(cudaGraphGetNodes(captured, all.data(), &nodes));
    int64_t kernels = 0;
    for (size_t i = 0; i < nodes && status == ATTENTION_OK; i++) {
        cudaGraphNodeType type;
        status = GPU_CHECK(cudaGraphNodeGetType(all[i], &type));
        kernels += type == cudaGraphNodeTypeKernel;
    }
    row->launches = kernels / calls;
    if (status == ATTENTION_OK && calls > 1) {
        std::vector<double> ms;
        status = GPU_CHECK(cudaGraphInstantiate(&ready, captured, 0));
        for (int i = 0; i < REPLAYS + 2 && status == ATTENTION_OK; i++) {
            float elapsed = 0;
            status = GPU_CHECK(cudaEventRecord(start, stream));
            if (status == ATTENTION_OK) status = GPU_CHECK(cudaGraphLaunch(ready, stream));
            if (status == ATTENTION_OK) status = GPU_CHECK(cudaEventRecord(stop, stream));
            if (status == ATTENTION_OK) status = GPU_CHECK(cudaEventSynchronize(stop));
            if (status == ATTENTION_OK)
                status = GPU_CHECK(cudaEventElapsedTime(&elapsed, start, stop));
            if (i >= 2) ms.push_back(static_cast<double>(elapsed) / CALLS);
        }
        if (status == ATTENTION_OK) row->ms_graph = median(ms);
    }
    if (ready) (void)cudaGraphExecDestroy(ready);
    if (captured) (void)cudaGraphDestroy(captured);
    return status;
}

attention_status measure(const call &c, bench_row *row)
{
    cudaEvent_t start, stop;
    double ms = 0, host = 0;
    attention_status status = GPU_CHECK(cudaEventCreate(&start));
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaEventCreate(&stop));
    if (status == ATTENTION_OK) status = timed(c, 0, start, stop, &row->ms_first, &host);
    if (status == ATTENTION_OK) {
        const int64_t count = row->batch * row->heads * row->seq * row->head_dim;
        status = check(window_of(0, count, c.fp32), c.o, c.args, c.fp32, &row->max_abs_err);
    }
    // R14's bound for fp16; scores held in 16 bits have a right to be worse.
    const double bound = c.method->forward == explicit_fp16 ? 0x1p-6 : 0x1p-9;
    if (status == ATTENTION_OK && !(row->max_abs_err <= bound)) {
        snprintf(row->status, sizeof row->status, "wrong");
        return status;
    }
    (void)matmul_fp16_flops(4096, pool, stream); // the clocks up
    for (int i = 0; i < 3 && status == ATTENTION_OK; i++)
        status = timed(c, i, start, stop, &ms, &host);
    // A quarter of a second's worth of repeats, from 7 to 100: short calls vary more.
    row->repeats = static_cast<int64_t>(fmin(100, fmax(7, 250 / fmax(ms, 1e-3))));
    std::vector<double> all, hosts;
    for (int i = 0; i < row->repeats && status == ATTENTION_OK; i++) {
        status = timed(c, i, start, stop, &ms, &host);
        all.push_back(ms);
        hosts.push_back(host);
    }
    if (status == ATTENTION_OK) status = graph(c, start, stop, row);
    (void)cudaEventDestroy(start);
    (void)cudaEventDestroy(stop);
    if (status != ATTENTION_OK) return status;
    row->ms_median = median(all);
    row->ms_min = *std::min_element(all.begin(), all.end());
    row->ms_max = *std::max_element(all.begin(), all.end());
    row->ms_host = median(hosts);
    const double device_ms = isnan(row->ms_graph) ? row->ms_median : row->ms_graph;
    row->tflops = 1e-9 * attention_useful_flops(&c.args) / device_ms;
    row->share_of_peak = peak_flops > 0 ? 1e12 * row->tflops / peak_flops : NAN;
    // More than the card can do is a mistake of the measurement, not a result.
    // Nor is a time that holds the host's.
    const bool late = isnan(row->ms_graph) && row->ms_host > head_start_ms;
    snprintf(row->status, sizeof row->status, "%s",
             row->share_of_peak > 1 ? "error"
             : late                 ? "late"
                                    : "ok");
    return ATTENTION_OK;
}

attention_status make_pool(int64_t most)
{
    random_stream r;
    random_seed(&r, 0);
    base.resize(base_count);
    random_normal(&r, base.data(), base_count);
    std::vector<uint16_t> bits(base_count);
    for (size_t i = 0; i < base.size(); i++) {
        bits[i] = fp16_from_float(base[i]);
        base[i] = fp16_to_float(bits[i]);
    }
    // Three tensors of the largest shape, or three times what an L2 of 60 MB holds.
    pool_count = std::max<int64_t>(3 * most + 8, 2 * int64_t{8192} * 8192);
    attention_status status = GPU_CHECK(
        cudaMalloc(reinterpret_cast<void **>(&pool), static_cast<size_t>(pool_count) * 2));
    for (int64_t at = 0; at < pool_count && status == ATTENTION_OK; at += base_count)
        status = GPU_CHECK(cudaMemcpy(
            pool + at, bits.data(), static_cast<size_t>(std::min(base_count, pool_count - at)) * 2,
            cudaMemcpyHostToDevice));
    return status;
}

double copy_bandwidth(cudaEvent_t start, cudaEvent_t stop)
{
    void *to = nullptr;
    const size_t bytes = size_t{1} << 28;
    float best = INFINITY;
    if (cudaMalloc(&to, bytes) != cudaSuccess) return 0;
    for (int i = 0; i < 10; i++) {
        float ms = INFINITY;
        (void)cudaEventRecord(start, stream);
        (void)cudaMemcpyAsync(to, pool, bytes, cudaMemcpyDeviceToDevice, stream);
        (void)cudaEventRecord(stop, stream);
        (void)cudaEventSynchronize(stop);
        (void)cudaEventElapsedTime(&ms, start, stop);
        best = fminf(best, ms);
    }
    (void)cudaFree(to);
    return isfinite(best) ? 2.0 * static_cast<double>(bytes) / (1e-3 * static_cast<double>(best))
                          : 0;
}

} // namespace

attention_status gpu_bench_open(bench_row *common, int64_t most)
{
    gpu_device device;
    int khz = 0;
    cudaEvent_t start = nullptr, stop = nullptr;
    attention_status status = gpu_device_open(&device);
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaStreamCreate(&stream));
    if (status == ATTENTION_OK) status = make_pool(most);
    if (status == ATTENTION_OK)
        status = GPU_CHECK(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0));
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaEventCreate(&start));
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaEventCreate(&stop));
    if (status != ATTENTION_OK) return status;
    peak_flops =
        1e3 * khz * device.multiprocessors * tensor_flops_a_clock(device.compute_capability);
    snprintf(common->device, ROW_TEXT, "%.63s", device.name);
    snprintf(common->compute_capability, ROW_TEXT, "%d.%d", device.compute_capability / 10,
             device.compute_capability % 10);
    snprintf(common->driver, ROW_TEXT, "%d.%d", device.driver / 1000, device.driver % 1000 / 10);
    snprintf(common->runtime, ROW_TEXT, "CUDA %d.%d", device.runtime / 1000,
             device.runtime % 1000 / 10);
    snprintf(common->compiler, ROW_TEXT, "nvcc %d.%d", __CUDACC_VER_MAJOR__, __CUDACC_VER_MINOR__);
    snprintf(common->cache, ROW_TEXT, "cold");
    common->peak_tflops = peak_flops > 0 ? 1e-12 * peak_flops : NAN;
    common->matmul_tflops = 1e-12 * matmul_fp16_flops(8192, pool, stream);
    common->copy_gbs = 1e-9 * copy_bandwidth(start, stop);
    (void)cudaEventDestroy(start);
    (void)cudaEventDestroy(stop);
    return ATTENTION_OK;
}

attention_status gpu_bench_row(const gpu_method *method, bench_row *row)
{
    call c = {method, attention_args_default(row->batch, row->heads, row->seq, row->head_dim),
              nullptr, method->dtype[2] == '3'};
    c.args.dtype = c.fp32 ? DTYPE_FP32 : DTYPE_FP16;
    c.args.causal = row->causal;
    if (method->block_q) c.args.block_q = row->block_q, c.args.block_k = row->block_k;
    const int64_t count = row->batch * row->heads * row->seq * row->head_dim;
    const size_t o_bytes = static_cast<size_t>(count) * (c.fp32 ? 4 : 2);
    const int64_t scratch_bytes = method->scratch ? method->scratch(&c.args) : 0;
    void *scratch = nullptr;
    size_t before = 0, after = 0, total = 0;
    attention_status status = ATTENTION_OK;
    if (c.fp32 && !pool_fp32) {
        status = GPU_CHECK(
            cudaMalloc(reinterpret_cast<void **>(&pool_fp32), static_cast<size_t>(pool_count) * 4));
        if (status == ATTENTION_OK)
            widen<<<4096, 256, 0, stream>>>(pool_fp32, reinterpret_cast<const __half *>(pool),
                                            pool_count);
    }
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaMalloc(&c.o, o_bytes));
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaMemset(c.o, 0xff, o_bytes)); // NaN
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaMemGetInfo(&before, &total));
    if (status == ATTENTION_OK && scratch_bytes)
        status = GPU_CHECK(cudaMalloc(&scratch, static_cast<size_t>(scratch_bytes)));
    baselines_use(scratch);
    if (status == ATTENTION_OK) status = measure(c, row);
    if (status == ATTENTION_OK) status = GPU_CHECK(cudaMemGetInfo(&after, &total));
    // The allocator hands out pages: what a method holds, by its own count where it has one.
    const double taken = static_cast<double>(before) - static_cast<double>(after);
    row->peak_extra_mib = (scratch_bytes ? static_cast<double>(scratch_bytes) : taken) / 0x1p20;
    row->peak_extra_with_o_mib = row->peak_extra_mib + static_cast<double>(o_bytes) / 0x1p20;
    if (scratch) (void)cudaFree(scratch);
    if (c.o) (void)cudaFree(c.o);
    if (status == ATTENTION_NO_MEMORY) {
        (void)cudaGetLastError(); // the sweep goes on
        snprintf(row->status, sizeof row->status, "oom");
        return ATTENTION_OK;
    }
    return status;
}

void gpu_bench_close(void)
{
    baselines_close();
    if (pool) (void)cudaFree(pool);
    if (pool_fp32) (void)cudaFree(pool_fp32);
    if (stream) (void)cudaStreamDestroy(stream);
    pool = nullptr;
    pool_fp32 = nullptr;
    stream = nullptr;
}
