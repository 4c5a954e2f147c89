// tile.h: 16-bit numbers and tiles of them in shared memory, for nvcc and for the emulator.
// Ordinary loads and stores of shared memory go through here, the others through fragment.h,
// async.h and hopper.h, so that the emulator can check them.
#ifndef TILE_H
#define TILE_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "status.h"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
// Registers cannot be indexed: an array that a loop indexes stays in them only if it is unrolled.
#define UNROLL _Pragma("unroll")
#else
#include "emulator.h"
#include "half.h"
#define UNROLL
#endif

namespace
{

// As not_implemented of status.h, in a kernel.
[[noreturn]] __host__ __device__ inline void kernel_not_implemented(const char *what)
{
#ifdef __CUDA_ARCH__
    if (blockIdx.x == 0 && threadIdx.x == 0) printf("not implemented yet: %s\n", what);
    __trap();
    for (;;) {
    }
#else
    not_implemented(what);
#endif
}

struct fp16 {
    uint16_t bits;
};
struct bf16 {
    uint16_t bits;
};

// Where a call stands, for the emulator's messages; empty for nvcc.
#ifdef __CUDACC__
struct site {
};
#else
using site = emulator::site;
#endif

#ifdef __CUDACC__
// Boxes, their swizzle and the descriptors of wgmma count from multiples of 1024 bytes.
extern __shared__ __align__(1024) uint4 shared_memory[];

__device__ inline void barrier(site = site())
{
    __syncthreads();
}

template <class V> __device__ inline V shared_load(uint32_t address, site)
{
    return *reinterpret_cast<const V *>(reinterpret_cast<const char *>(shared_memory) + address);
}

template <class V> __device__ inline void shared_store(uint32_t address, V x, site)
{
    *reinterpret_cast<V *>(reinterpret_cast<char *>(shared_memory) + address) = x;
}

__device__ inline uint4 global_load_16(const void *from, site)
{
    return __ldg(static_cast<const uint4 *>(from));
}

// In one piece, which the compiler makes of neither memcpy nor, always, of an assignment.
__device__ inline void global_store_16(void *to, uint4 x, site)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
}

__device__ inline float to_float(fp16 x)
{
    return __half2float(__ushort_as_half(x.bits));
}
__device__ inline float to_float(bf16 x)
{
    return __bfloat162float(__ushort_as_bfloat16(x.bits));
}
// To the nearest, ties to even.
__device__ inline void from_float(fp16 &y, float x)
{
    y.bits = __half_as_ushort(__float2half_rn(x));
}
__device__ inline void from_float(bf16 &y, float x)
{
    y.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
#else
inline void barrier(site where = site())
{
    emulator::barrier(where);
}

template <class V> inline V shared_load(uint32_t address, site where)
{
    V x;
    emulator::shared_read(&x, address, sizeof x, where);
    return x;
}

template <class V> inline void shared_store(uint32_t address, V x, site where)
{
    emulator::shared_write(address, &x, sizeof x, where);
}

inline uint4 global_load_16(const void *from, site where)
{
    if (reinterpret_cast<uintptr_t>(from) % 16)
        emulator::fail(where, "loads 16 bytes from an address that is no multiple of 16");
    uint4 x;
    memcpy(&x, from, 16);
    return x;
}

inline void global_store_16(void *to, uint4 x, site where)
{
    if (reinterpret_cast<uintptr_t>(to) % 16)
        emulator::fail(where, "stores 16 bytes at an address that is no multiple of 16");
    memcpy(to, &x, 16);
}

inline float to_float(fp16 x)
{
    return fp16_to_float(x.bits);
}
inline float to_float(bf16 x)
{
    return bf16_to_float(x.bits);
}
inline void from_float(fp16 &y, float x)
{
    y.bits = fp16_from_float(x);
}
inline void from_float(bf16 &y, float x)
{
    y.bits = bf16_from_float(x);
}
#endif

// [rows, cols]. Padding keeps rows that are read at one time in different banks: 16 bytes a row for
// 16-bit elements, so that eight rows read 16 bytes each begin 4 banks apart and cover all 32; one
// element for floats, so that 32 rows read at one column do.
template <class T, int rows, int cols> struct shared_tile {
    static constexpr int stride = cols + (sizeof(T) == 2 ? 8 : 1); // elements
    static constexpr uint32_t bytes = rows * stride * sizeof(T);
    uint32_t start;
    __device__ explicit shared_tile(uint32_t start) : start(start)
    {
    }
    __device__ uint32_t end() const
    {
        return start + bytes;
    }
    __device__ uint32_t address(int row, int col) const
    {
        return start + static_cast<uint32_t>((row * stride + col) * static_cast<int>(sizeof(T)));
    }
    // The address of what lies `down` rows and `right` columns further.
    __device__ uint32_t shifted(uint32_t address, int down, int right) const
    {
        return address +
               static_cast<uint32_t>((down * stride + right) * static_cast<int>(sizeof(T)));
    }
    __device__ T get(int row, int col, site where = site()) const
    {
        return shared_load<T>(address(row, col), where);
    }
    __device__ void set(int row, int col, T x, site where = site()) const
    {
        shared_store(address(row, col), x, where);
    }
};

// Copies `rows` rows from global memory, all threads of the block together; rows from `valid`
// on become zeros and are not read.
template <int threads, class T, int rows, int cols>
__device__ inline void load_tile(shared_tile<T, rows, cols> tile, const T *from, int64_t valid,
                                 site where = site())
{
    constexpr int in_row = cols / 8, each = rows * in_row / threads;
    static_assert(rows * in_row % threads == 0, "threads must share the tile evenly");
    uint4 x[each];
    for (int i = 0; i < each; i++) {
        const int at = static_cast<int>(threadIdx.x) + i * threads;
        x[i] = uint4{0, 0, 0, 0};
        if (at / in_row < valid) x[i] = global_load_16(from + at * 8, where);
    }
    for (int i = 0; i < each; i++) {
        const int at = static_cast<int>(threadIdx.x) + i * threads;
        shared_store(tile.address(at / in_row, at % in_row * 8), x[i], where);
    }
}

// Eight neighbouring elements of a row, as floats; col is a multiple of 8.
template <class T, int rows, int cols>
__device__ inline void load_8(float x[8], shared_tile<T, rows, cols> tile, int row, int col,
                              site where = site())
{
    const uint4 bits = shared_load<uint4>(tile.address(row, col), where);
    T element[8];
    memcpy(element, &bits, sizeof bits);
    UNROLL for (int i = 0; i < 8; i++) x[i] = to_float(element[i]);
}

// ---- a row of a tile, by one thread -----------------------------------------------------------

// Row r of a times row c of b.
template <class T, int rows_a, int rows_b, int d>
__device__ inline float dot(shared_tile<T, rows_a, d> a, int r, shared_tile<T, rows_b, d> b, int c,
                            site where = site())
{
    float sum = 0.0f, x[8], y[8];
    for (int at = 0; at < d; at += 8) {
        load_8(x, a, r, at, where);
        load_8(y, b, c, at, where);
        UNROLL for (int i = 0; i < 8; i++) sum += x[i] * y[i];
    }
    return sum;
}

template <int rows, int cols>
__device__ inline float row_max(shared_tile<float, rows, cols> s, int r, site where = site())
{
    float x = -INFINITY;
    for (int c = 0; c < cols; c++) x = fmaxf(x, s.get(r, c, where));
    return x;
}

// p = 2^(s - base) on row r, and the sum of it.
template <int rows, int cols>
__device__ inline float row_exp2_sum(shared_tile<float, rows, cols> p,
                                     shared_tile<float, rows, cols> s, int r, float base,
                                     site where = site())
{
    float sum = 0.0f;
    for (int c = 0; c < cols; c++) {
        const float x = exp2f(s.get(r, c, where) - base);
        p.set(r, c, x, where);
        sum += x;
    }
    return sum;
}

// acc += weight times row c of v
template <class T, int rows, int d>
__device__ inline void add_row(float (&acc)[d], float weight, shared_tile<T, rows, d> v_tile, int c,
                               site where = site())
{
    UNROLL for (int at = 0; at < d; at += 8)
    {
        float x[8];
        load_8(x, v_tile, c, at, where);
        UNROLL for (int i = 0; i < 8; i++) acc[at + i] += weight * x[i];
    }
}

// Rounds a row and writes it to global memory, 16 bytes at a time.
template <class T, int d>
__device__ inline void store_row(T *to, const float (&x)[d], site where = site())
{
    UNROLL for (int at = 0; at < d; at += 8)
    {
        T y[8];
        uint4 bits;
        UNROLL for (int i = 0; i < 8; i++) from_float(y[i], x[at + i]);
        memcpy(&bits, y, sizeof y);
        global_store_16(to + at, bits, where);
    }
}

} // namespace
#endif
