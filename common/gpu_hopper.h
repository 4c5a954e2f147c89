// gpu_hopper.h: tensor maps, by which the copy engine of compute capability 9.0 finds its way, and
// launches of kernels that take them.
#ifndef GPU_HOPPER_H
#define GPU_HOPPER_H

#include "gpu.h"
#include "warpgroup.h"

namespace
{

// Of x [planes, n, d], 16-bit, to be copied in boxes of box_rows x 64. Fails with
// ATTENTION_NO_DEVICE where the driver knows no tensor maps.
inline attention_status tensor_map_make(tensor_map *map, const void *x, int64_t planes, int64_t n,
                                        int d, int box_rows)
{
#ifdef __CUDACC__
    static const auto encode = [] { // asked for once: the driver takes its time
        void *symbol = nullptr;
        cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
        (void)cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &symbol, 12000,
                                               cudaEnableDefault, &found);
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(
            found == cudaDriverEntryPointSuccess ? symbol : nullptr);
    }();
    if (!encode) return status_fail(ATTENTION_NO_DEVICE, "the NVIDIA driver knows no tensor maps");
    // From the fastest dimension on: sizes, bytes from one to the next, the box, its steps.
    const cuuint64_t size[] = {static_cast<cuuint64_t>(d), static_cast<cuuint64_t>(n),
                               static_cast<cuuint64_t>(planes)};
    const cuuint64_t stride[] = {size[0] * 2, size[0] * size[1] * 2};
    const cuuint32_t box[] = {64, static_cast<cuuint32_t>(box_rows), 1}, step[] = {1, 1, 1};
    const CUresult result =
        encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, const_cast<void *>(x), size, stride, box,
               step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        return status_fail(
            ATTENTION_BAD_ARGUMENT, "no tensor map holds [%lld, %lld, %d]: the driver's error %d",
            static_cast<long long>(planes), static_cast<long long>(n), d, static_cast<int>(result));
#else
    *map = {x, planes, n, d, box_rows};
#endif
    return ATTENTION_OK;
}

// gpu_launch for a kernel that takes tensor maps of q, in boxes of block_q rows, and of k and v, in
// boxes of block_k.
template <class K>
attention_status gpu_launch_hopper(K *kernel, int block_q, int block_k, int threads,
                                   uint32_t shared_bytes, const gpu_call &call, int most = 0,
                                   int cluster = 1)
{
    const attention_args *args = call.args;
    const int64_t planes = args->batch * args->heads;
    const void *const tensors[] = {call.q, call.k, call.v};
    tensor_map maps[3];
    void *const pointers[] = {&maps[0], &maps[1], &maps[2]};
    attention_status status = ATTENTION_OK;
    for (int t = 0; t < 3 && status == ATTENTION_OK; t++)
        status = tensor_map_make(&maps[t], tensors[t], planes, args->seq,
                                 static_cast<int>(args->head_dim), t == 0 ? block_q : block_k);
    if (status != ATTENTION_OK) return status;
    return gpu_launch(kernel, block_q, threads, shared_bytes, call, pointers, most, cluster);
}

// gpu_launch_hopper for a kernel whose blocks stay, as many as there are multiprocessors. It is
// given scale log2(e), as exp2 wants it: a constant of the launch, which an instruction reads
// without a register, and wgmma is busy with those.
template <class K>
attention_status gpu_launch_to_stay(K *kernel, int block_q, int block_k, int threads,
                                    uint32_t shared_bytes, const gpu_call &call, int cluster)
{
    int processors = 0;
    const attention_status status = gpu_attribute(&processors, cudaDevAttrMultiProcessorCount);
    if (status != ATTENTION_OK) return status;
    attention_args args = *call.args;
    args.scale *= 1.44269504f;
    gpu_call scaled = call;
    scaled.args = &args;
    return gpu_launch_hopper(kernel, block_q, block_k, threads, shared_bytes, scaled, processors,
                             cluster);
}

// How often the multiprocessors take a tile of block_q queries each until all heads are done; two
// where tiles are causal, half as long on the average. 0 if the device does not say how many it
// has, as gpu_launch_to_stay then does.
inline int64_t gpu_rounds(const gpu_call &call, int block_q)
{
    int processors = 0;
    if (gpu_attribute(&processors, cudaDevAttrMultiProcessorCount) != ATTENTION_OK) return 0;
    const attention_args *args = call.args;
    const int64_t tiles = args->batch * args->heads * ((args->seq - 1) / block_q + 1);
    return (tiles - 1) / (processors * (args->causal ? 2 : 1)) + 1;
}

} // namespace
#endif
