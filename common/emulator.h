// emulator.h: what a kernel's source needs of CUDA when there is no CUDA: the keywords, the
// built-in variables, the few runtime calls the host side makes, and the operations of a block.
//
// A launch runs every thread of a block as a fiber, in a seeded random order, and the blocks of
// the grid on the machine's cores. Barriers, shuffles, ldmatrix and mma are executed once, when
// the last thread concerned arrives. What hardware lets pass is an error here that names threads
// and lines; docs/emulator.md tells how. Compile a .cu file with: g++ -std=c++17 -x c++
#ifndef EMULATOR_H
#define EMULATOR_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#ifndef EMULATED_ARCH
#define EMULATED_ARCH 800 // what a kernel sees as __CUDA_ARCH__; 750 selects the Turing path
#endif

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define threadIdx emulator::thread_index()
#define blockIdx  emulator::block_index()
#define blockDim  emulator::block_extent()
#define gridDim   emulator::grid_extent()

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z)
    {
    }
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

namespace emulator
{

// Where in the source something happened. A function that takes `site where = site()` gets the
// line of its caller; passing `where` on keeps that line.
struct site {
    const char *file;
    int line;
    constexpr site(const char *file = __builtin_FILE(), int line = __builtin_LINE())
        : file(file), line(line)
    {
    }
};

const dim3 &thread_index();
const dim3 &block_index();
const dim3 &block_extent();
const dim3 &grid_extent();

// Reports a mistake of the running thread: the launch fails with this sentence.
[[noreturn]] void fail(site where, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Operations of a whole block and of a whole warp.
void barrier(site where);
void warp_barrier(site where);
uint32_t shuffle_xor(uint32_t value, int lane_mask, site where);

// Four 8 x 8 matrices of 16-bit elements: lane 8 i + r gives the byte address in shared memory
// of row r of matrix i; register i of lane l receives elements 2 (l % 4) and 2 (l % 4) + 1 of
// row l / 4 of matrix i, or with `transposed` of column l / 4.
void ldmatrix_x4(uint32_t x[4], uint32_t address, bool transposed, site where);

// c += a b for a [16, 16], b [16, 8], or a [16, 8], b [8, 8]; layouts as in the PTX manual.
void mma_m16n8k16_fp16(float c[4], const uint32_t a[4], const uint32_t b[2], site where);
void mma_m16n8k16_bf16(float c[4], const uint32_t a[4], const uint32_t b[2], site where);
void mma_m16n8k8_fp16(float c[4], const uint32_t a[2], const uint32_t b[1], site where);

// The block's shared memory, by byte address.
void shared_read(void *to, uint32_t address, uint32_t bytes, site where);
void shared_write(uint32_t address, const void *from, uint32_t bytes, site where);

// Copies to shared memory that arrive when their thread waits for them, and are NaN until then;
// from NULL come zeros. Nobody may touch the target in between.
void copy_async(uint32_t address, const void *from, uint32_t bytes, site where);
void wait_for_copies(site where);

// What compute capability 9.0 adds. An mbarrier is 8 bytes of shared memory, named by their
// address; it goes through phases, each complete when all its arrivals and all bytes have come.
void mbarrier_init(uint32_t address, int arrivals, site where);
void fence_barrier_init(site where); // other threads, and copies, may use them after a barrier
void mbarrier_arrive(uint32_t address, site where);
void mbarrier_arrive_drop(uint32_t address, site where); // and is expected in no later phase
void mbarrier_expect(uint32_t address, uint32_t bytes, site where); // that many more; and arrives
void mbarrier_wait(uint32_t address, int parity, site where);       // for a phase of that parity

// [planes, rows, cols] of 16-bit elements, to be copied in boxes of box_rows x 64 of a plane. A box
// lies in shared memory in rows of 128 bytes, chunk c of 16 bytes of row r at chunk c ^ (r % 8);
// rows past the end are zeros.
struct tensor_map {
    const void *base;
    int64_t planes, rows;
    int cols, box_rows;
};
// Copies a box, some time from now, and then tells the mbarrier its box_rows * 128 bytes.
void copy_box(uint32_t to, const tensor_map &map, int col, int row, int plane, uint32_t mbarrier,
              site where);

// In a launch that may begin early: the launches before it have ended. A thread copies no box
// before.
void wait_for_launches_before(site where);

// c [64, n] += a [64, 16] b [16, n], by a warpgroup and in the background: until a wgmma_wait that
// covers it nobody may touch c, a, or the shared operands. A thread holds n / 2 elements of c; a
// comes from four registers, as mma's, or if that is NULL from shared memory by a_descriptor. b
// lies as [n, 16], or with b_transposed as [16, n]. Without `accumulate`, c = a b.
void wgmma(float *c, int n, const uint32_t *a, uint64_t a_descriptor, uint64_t b_descriptor,
           bool b_transposed, bool bf16, bool accumulate, site where);
void wgmma_fence(site where);  // c and a have been written by ordinary instructions
void wgmma_commit(site where); // closes a group
void wgmma_wait(int groups_left, site where);

// Barriers 1 to 15, of some warps of the block; who arrives does not wait.
void named_barrier_sync(int id, int threads, site where);
void named_barrier_arrive(int id, int threads, site where);

void set_registers(int count, bool increase, site where); // a thread, of a warpgroup

// Two blocks that run together, a cluster. Shared memory is addressed across both: a block's own
// begins at own_memory(), and what is at `address` in one is at peer(address) in the other. A block
// may arrive at the other's mbarriers, and copy boxes to both, which tells the mbarrier of each.
enum { cluster_shift = 18 };
uint32_t own_memory();
uint32_t peer(uint32_t address);
void cluster_barrier(site where); // of all threads of both that have not returned
void copy_box_to_both(uint32_t to, const tensor_map &map, int col, int row, int plane,
                      uint32_t mbarrier, site where);

struct settings {
    uint64_t seed = 1;           // of the order in which threads run
    int late_warp = -1;          // goes on only when nothing else can; -1: none
    int threads = 0;             // cores to use; 0: all
    int compute_capability = 90; // of the card; what kernels are built for is EMULATED_ARCH
    int shared_bytes = 0;        // what a block may opt into; 0: what that capability allows
};
settings &current_settings();

struct launch_report { // of the last launch made by this host thread
    int64_t blocks, switches, collectives;
    int64_t shared_accesses; // of warps: an ldmatrix counts 4, one for each matrix
    int64_t bank_conflicts;  // turns that shared memory needed beyond one for each access
};
launch_report last_launch();

} // namespace emulator

// A product that the compiler may not fuse with a sum.
inline float __fmul_rn(float x, float y)
{
    return x * y;
}

// A product and a difference rounded up, where double holds them exactly: always, and unless one
// is 2^29 times the other.
inline float round_up(double exact)
{
    const float nearest = static_cast<float>(exact);
    return static_cast<double>(nearest) < exact ? std::nextafter(nearest, INFINITY) : nearest;
}
inline float __fmul_ru(float x, float y)
{
    return round_up(static_cast<double>(x) * static_cast<double>(y));
}
inline float __fsub_ru(float x, float y)
{
    return round_up(static_cast<double>(x) - static_cast<double>(y));
}

inline void __syncthreads(emulator::site where = emulator::site())
{
    emulator::barrier(where);
}
inline void __syncwarp(emulator::site where = emulator::site())
{
    emulator::warp_barrier(where);
}

template <class T> T atomicAdd(T *address, T value)
{
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}

// The runtime, as far as common/ uses it. These have C++ linkage, so that a program may hold
// both this and NVIDIA's.
enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorUnsupportedPtxVersion = 222,
    cudaErrorLaunchFailure = 719,
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
struct cudaFuncAttributes {
    int ptxVersion; // the architecture whose path was compiled, 80 for 8.0
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
using cudaStream_t = struct CUstream_st *;

cudaError_t cudaMalloc(void **pointer, size_t bytes);
cudaError_t cudaFree(void *pointer);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemset(void *to, int value, size_t bytes);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetLastError();
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
const char *cudaGetErrorString(cudaError_t error);

namespace emulator
{

// `early`: the launches before it need not have ended when it begins. `cluster`: blocks, one or two
// neighbours, that run together.
cudaError_t launch(const void *kernel, dim3 grid, dim3 block, size_t shared_bytes,
                   void (*call)(const void *kernel, void **arguments), void **arguments, bool early,
                   int cluster);
cudaError_t allow_shared_bytes(const void *kernel, int bytes);

template <class... P, size_t... I>
void call_with(void (*kernel)(P...), void **arguments, std::index_sequence<I...>)
{
    kernel(*static_cast<P *>(arguments[I])...);
}

// The code that turns an argument array back into a call of the kernel.
template <class... P> struct caller {
    static void call(const void *kernel, void **arguments)
    {
        call_with(reinterpret_cast<void (*)(P...)>(const_cast<void *>(kernel)), arguments,
                  std::index_sequence_for<P...>());
    }
};

template <class... P>
cudaError_t launch_kernel(void (*kernel)(P...), dim3 grid, dim3 block, void **arguments,
                          size_t shared_bytes, cudaStream_t, bool early, int cluster = 1)
{
    return launch(reinterpret_cast<const void *>(kernel), grid, block, shared_bytes,
                  caller<P...>::call, arguments, early, cluster);
}

} // namespace emulator

template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void **arguments,
                             size_t shared_bytes = 0, cudaStream_t stream = nullptr)
{
    return emulator::launch_kernel(kernel, grid, block, arguments, shared_bytes, stream, false);
}

template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute, int value)
{
    return emulator::allow_shared_bytes(reinterpret_cast<const void *>(kernel), value);
}

template <class... P>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, void (*)(P...))
{
    attributes->ptxVersion = EMULATED_ARCH / 10;
    return cudaSuccess;
}
#endif
