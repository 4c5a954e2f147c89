// async.h: copies from global to shared memory that go on by themselves, and the tile they fill.
//
// A thread issues copies of 16 bytes (cp.async, from compute capability 8.0 on) and goes on.
// wait_for_copies() returns when all that it issued has arrived; other threads may read it after a
// barrier behind that.
//
// A swizzled_tile has no padding. A row's 16-byte pieces change places, piece c of row r lying
// where piece c ^ (r % 8) would, so that eight rows' pieces of one column lie in different banks:
//
//     row 0   0 1 2 3 4 5 6 7        a row of 64 elements is 128 bytes, all 32 banks; ldmatrix
//     row 1   1 0 3 2 5 4 7 6        reads one piece from each of eight rows at a time, a
//     row 2   2 3 0 1 6 7 4 5        column of this square, and meets every bank once
//     ...     ...
//     row 7   7 6 5 4 3 2 1 0
#ifndef ASYNC_H
#define ASYNC_H

#include "tile.h"

namespace
{

#ifdef __CUDACC__
// 16 bytes to shared memory, or zeros if not `valid`, when nothing is read.
__device__ inline void copy_async_16(uint32_t address, const void *from, bool valid, site)
{
#if __CUDA_ARCH__ >= 800
    const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared_memory)) + address;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(from), "r"(valid ? 16 : 0)
                 : "memory");
#else // Turing waits for each
    uint4 x = {0, 0, 0, 0};
    if (valid) x = *static_cast<const uint4 *>(from); // with __ldg registers spill
    shared_store(address, x, site());
#endif
}

__device__ inline void wait_for_copies(site = site())
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
#else
inline void copy_async_16(uint32_t address, const void *from, bool valid, site where)
{
    if (reinterpret_cast<uintptr_t>(from) % 16)
        emulator::fail(where, "copies 16 bytes from an address that is no multiple of 16");
    emulator::copy_async(address, valid ? from : nullptr, 16, where);
}

inline void wait_for_copies(site where = site())
{
    emulator::wait_for_copies(where);
}
#endif

// [rows, cols] of 16-bit elements; cols is a multiple of 64, and `start` one of a row's bytes.
template <class T, int rows, int cols> struct swizzled_tile {
    static constexpr uint32_t bytes = rows * cols * sizeof(T);
    uint32_t start;
    __device__ explicit swizzled_tile(uint32_t start) : start(start)
    {
    }
    __device__ uint32_t end() const
    {
        return start + bytes;
    }
    // Of eight elements at once: col is a multiple of 8.
    __device__ uint32_t address(int row, int col) const
    {
        return start + static_cast<uint32_t>(row * cols * 2 + ((col * 2) ^ (row % 8 * 16)));
    }
    // The address of what lies `down` rows and `right` columns further, multiples of 16. One
    // exclusive or, where they are constants: a table of addresses would take the kernel's
    // registers.
    __device__ uint32_t shifted(uint32_t address, int down, int right) const
    {
        return (address ^ static_cast<uint32_t>(right * 2)) +
               static_cast<uint32_t>(down * cols * 2);
    }
};

// Issues the copies of `rows` rows, all threads of the block together; rows from `valid` on become
// zeros and are not read.
template <int threads, class T, int rows, int cols>
__device__ inline void load_tile_async(swizzled_tile<T, rows, cols> tile, const T *from, int valid,
                                       site where = site())
{
    constexpr int in_row = cols / 8;
    static_assert(rows * in_row % threads == 0, "threads must share the tile evenly");
    UNROLL for (int i = 0; i < rows * in_row / threads; i++)
    {
        const uint32_t at = threadIdx.x + static_cast<uint32_t>(i * threads);
        const int row = static_cast<int>(at / in_row), col = static_cast<int>(at % in_row) * 8;
        copy_async_16(tile.address(row, col), from + at * 8, row < valid, where);
    }
}

} // namespace
#endif
