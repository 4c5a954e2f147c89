// baselines.cu: attention with its scores in memory, and with a launch a step, by cuBLAS.
#include "baselines.h"

#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <math.h>

#include "gpu_runtime.h"

namespace
{

cublasHandle_t handle;
void *scratch, *workspace;
constexpr size_t workspace_bytes = 32 << 20;
constexpr int64_t tile = 128; // of tiled_launches, both ways

attention_status blas(cublasStatus_t error, const char *call)
{
    return error == CUBLAS_STATUS_SUCCESS
               ? ATTENTION_OK
               : status_fail(ATTENTION_KERNEL_FAILED, "%s: %s", call, cublasGetStatusString(error));
}

attention_status ready(cudaStream_t stream)
{
    if (!handle) {
        attention_status status = blas(cublasCreate(&handle), "cublasCreate");
        if (status == ATTENTION_OK) status = GPU_CHECK(cudaMalloc(&workspace, workspace_bytes));
        if (status != ATTENTION_OK) return status;
    }
    cublasSetStream(handle, stream);
    return blas(cublasSetWorkspace(handle, workspace, workspace_bytes), "cublasSetWorkspace");
}

// Row-major c [rows, cols] = alpha a b^T + beta c, or a b: cuBLAS counts columns first, so it is
// asked for the transpose. Of `count` matrices, `step_` elements apart.
attention_status product(bool transposed_b, int64_t rows, int64_t cols, int64_t depth, float alpha,
                         const void *a, cudaDataType type_a, int64_t lda, int64_t step_a,
                         const void *b, cudaDataType type_b, int64_t ldb, int64_t step_b,
                         float beta, void *c, cudaDataType type_c, int64_t ldc, int64_t step_c,
                         int64_t count)
{
    return blas(cublasGemmStridedBatchedEx(
                    handle, transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N,
                    static_cast<int>(cols), static_cast<int>(rows), static_cast<int>(depth), &alpha,
                    b, type_b, static_cast<int>(ldb), step_b, a, type_a, static_cast<int>(lda),
                    step_a, &beta, c, type_c, static_cast<int>(ldc), step_c,
                    static_cast<int>(count), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                "cublasGemmStridedBatchedEx");
}

__device__ float block_reduce(float x, bool maximum)
{
    __shared__ float part[32];
    for (int mask = 16; mask > 0; mask /= 2) {
        const float y = __shfl_xor_sync(0xffffffff, x, mask);
        x = maximum ? fmaxf(x, y) : x + y;
    }
    __syncthreads(); // part may still be read from the last call
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x % 32 < blockDim.x / 32 ? part[threadIdx.x % 32] : maximum ? -INFINITY : 0.0f;
    for (int mask = 16; mask > 0; mask /= 2) {
        const float y = __shfl_xor_sync(0xffffffff, x, mask);
        x = maximum ? fmaxf(x, y) : x + y;
    }
    return x;
}

// A block a row of s [rows, n]: p = softmax(s), masked where causal.
template <class T> __global__ void softmax(T *p, const T *s, int64_t n, bool causal)
{
    const int64_t row = blockIdx.x;
    const int64_t visible = causal ? row % n + 1 : n;
    float m = -INFINITY, l = 0.0f;
    for (int64_t j = threadIdx.x; j < visible; j += blockDim.x)
        m = fmaxf(m, static_cast<float>(s[row * n + j]));
    m = block_reduce(m, true);
    for (int64_t j = threadIdx.x; j < visible; j += blockDim.x)
        l += expf(static_cast<float>(s[row * n + j]) - m);
    l = block_reduce(l, false);
    for (int64_t j = threadIdx.x; j < n; j += blockDim.x)
        p[row * n + j] =
            static_cast<T>(j < visible ? expf(static_cast<float>(s[row * n + j]) - m) / l : 0.0f);
}

template <class T>
attention_status explicit_attention(const void *q, const void *k, const void *v, void *o,
                                    const attention_args *args, cudaDataType type,
                                    cudaStream_t stream)
{
    const int64_t n = args->seq, d = args->head_dim, planes = args->batch * args->heads;
    T *s = static_cast<T *>(scratch), *p = s + planes * n * n;
    attention_status status = ready(stream);
    if (status == ATTENTION_OK)
        status = product(true, n, n, d, args->scale, q, type, d, n * d, k, type, d, n * d, 0.0f, s,
                         type, n, n * n, planes);
    if (status != ATTENTION_OK) return status;
    softmax<<<static_cast<unsigned>(planes * n), 256, 0, stream>>>(p, s, n, args->causal);
    status = GPU_CHECK(cudaGetLastError());
    if (status != ATTENTION_OK) return status;
    return product(false, n, d, n, 1.0f, p, type, n, n * n, v, type, d, n * d, 0.0f, o, type, d,
                   n * d, planes);
}

// One step of the recurrence on a tile of scores s [planes, rows, cols], a block a row.
__global__ void online_softmax(const float *s, __half *p, float *m, float *l, float *acc, int rows,
                               int64_t cols, int64_t d, int64_t i, int64_t j, bool causal)
{
    const int64_t plane = blockIdx.x / rows, r = blockIdx.x % rows, at = plane * tile + r;
    const float *s_row = s + at * tile;
    float own = -INFINITY, sum = 0.0f;
    for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
        if (!causal || j + c <= i + r) own = fmaxf(own, s_row[c]);
    const float m_old = m[at], m_new = fmaxf(m_old, block_reduce(own, true));
    const float base = m_new == -INFINITY ? 0.0f : m_new, correction = expf(m_old - base);
    for (int64_t c = threadIdx.x; c < tile; c += blockDim.x) {
        const float x = c < cols && (!causal || j + c <= i + r) ? expf(s_row[c] - base) : 0.0f;
        p[at * tile + c] = __float2half_rn(x);
        sum += x;
    }
    sum = block_reduce(sum, false);
    for (int64_t x = threadIdx.x; x < d; x += blockDim.x) acc[at * d + x] *= correction;
    if (threadIdx.x == 0) {
        l[at] = l[at] * correction + sum;
        m[at] = m_new;
    }
}

__global__ void start_tile(float *m, float *l, float *acc, int64_t d)
{
    const int64_t at = blockIdx.x;
    for (int64_t x = threadIdx.x; x < d; x += blockDim.x) acc[at * d + x] = 0.0f;
    if (threadIdx.x == 0) m[at] = -INFINITY, l[at] = 0.0f;
}

__global__ void normalise(__half *o, const float *l, const float *acc, int rows, int64_t n,
                          int64_t d, int64_t i)
{
    const int64_t plane = blockIdx.x / rows, r = blockIdx.x % rows, at = plane * tile + r;
    for (int64_t x = threadIdx.x; x < d; x += blockDim.x)
        o[(plane * n + i + r) * d + x] = __float2half_rn(acc[at * d + x] / l[at]);
}

} // namespace

int64_t explicit_fp32_scratch(const attention_args *args)
{
    return 2 * 4 * args->batch * args->heads * args->seq * args->seq;
}

int64_t explicit_fp16_scratch(const attention_args *args)
{
    return 2 * 2 * args->batch * args->heads * args->seq * args->seq;
}

int64_t tiled_launches_scratch(const attention_args *args)
{
    return args->batch * args->heads * tile * (tile * (4 + 2) + args->head_dim * 4 + 2 * 4);
}

void baselines_use(void *memory)
{
    scratch = memory;
}

attention_status explicit_fp32(const void *q, const void *k, const void *v, void *o, float *,
                               const attention_args *args, cudaStream_t stream)
{
    return explicit_attention<float>(q, k, v, o, args, CUDA_R_32F, stream);
}

attention_status explicit_fp16(const void *q, const void *k, const void *v, void *o, float *,
                               const attention_args *args, cudaStream_t stream)
{
    return explicit_attention<__half>(q, k, v, o, args, CUDA_R_16F, stream);
}

attention_status tiled_launches(const void *q, const void *k, const void *v, void *o, float *,
                                const attention_args *args, cudaStream_t stream)
{
    const int64_t n = args->seq, d = args->head_dim, planes = args->batch * args->heads;
    float *s = static_cast<float *>(scratch), *acc = s + planes * tile * tile;
    float *m = acc + planes * tile * d, *l = m + planes * tile;
    __half *p = reinterpret_cast<__half *>(l + planes * tile);
    const __half *q_all = static_cast<const __half *>(q), *k_all = static_cast<const __half *>(k),
                 *v_all = static_cast<const __half *>(v);
    attention_status status = ready(stream);
    for (int64_t i = 0; i < n && status == ATTENTION_OK; i += tile) {
        const int rows = static_cast<int>(n - i < tile ? n - i : tile);
        const unsigned blocks = static_cast<unsigned>(planes * rows);
        start_tile<<<static_cast<unsigned>(planes * tile), 64, 0, stream>>>(m, l, acc, d);
        for (int64_t j = 0; j < n && status == ATTENTION_OK; j += tile) {
            const int64_t cols = n - j < tile ? n - j : tile;
            status = product(true, rows, cols, d, args->scale, q_all + i * d, CUDA_R_16F, d, n * d,
                             k_all + j * d, CUDA_R_16F, d, n * d, 0.0f, s, CUDA_R_32F, tile,
                             tile * tile, planes);
            online_softmax<<<blocks, 128, 0, stream>>>(s, p, m, l, acc, rows, cols, d, i, j,
                                                       args->causal);
            if (status == ATTENTION_OK)
                status = product(false, rows, d, cols, 1.0f, p, CUDA_R_16F, tile, tile * tile,
                                 v_all + j * d, CUDA_R_16F, d, n * d, 1.0f, acc, CUDA_R_32F, d,
                                 tile * d, planes);
        }
        normalise<<<blocks, 64, 0, stream>>>(static_cast<__half *>(o), l, acc, rows, n, d, i);
    }
    return status == ATTENTION_OK ? GPU_CHECK(cudaGetLastError()) : status;
}

double matmul_fp16_flops(int n, const void *normals, cudaStream_t stream)
{
    void *c = nullptr;
    cudaEvent_t start = nullptr, stop = nullptr;
    const size_t bytes = static_cast<size_t>(n) * static_cast<size_t>(n) * 2;
    float best = INFINITY;
    if (ready(stream) != ATTENTION_OK || cudaMalloc(&c, bytes) != cudaSuccess) return 0;
    const __half *a = static_cast<const __half *>(normals), *b = a + int64_t{n} * n;
    (void)cudaEventCreate(&start);
    (void)cudaEventCreate(&stop);
    for (int i = 0; i < 20; i++) {
        float ms = INFINITY;
        (void)cudaEventRecord(start, stream);
        if (product(true, n, n, n, 1.0f, a, CUDA_R_16F, n, 0, b, CUDA_R_16F, n, 0, 0.0f, c,
                    CUDA_R_16F, n, 0, 1) != ATTENTION_OK)
            break;
        (void)cudaEventRecord(stop, stream);
        (void)cudaEventSynchronize(stop);
        (void)cudaEventElapsedTime(&ms, start, stop);
        best = fminf(best, ms);
    }
    (void)cudaEventDestroy(start);
    (void)cudaEventDestroy(stop);
    (void)cudaFree(c);
    return isfinite(best) ? 2.0 * n * n * n / (1e-3 * static_cast<double>(best)) : 0;
}

void baselines_close(void)
{
    if (handle) cublasDestroy(handle);
    if (workspace) (void)cudaFree(workspace);
    handle = nullptr;
    workspace = nullptr;
}
