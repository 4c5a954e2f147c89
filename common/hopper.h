// hopper.h: what compute capability 9.0 does by itself: copies of whole tiles, and products of
// four warps at a time. PTX stands here, in async.h and in fragment.h alone.
//
// Copies (TMA). One thread names a box of a tensor; a copy engine fetches it, swizzles it as in
// async.h, and tells an mbarrier how many bytes have come. A ring of tiles has two mbarriers a
// place: `full`, for which readers wait, and `empty`, for which the one who fills it waits. An
// mbarrier goes through phases; who waits names the parity of the phase:
//
//     place 0    fill       wait, read, release      fill       wait, read, release    ...
//     full       phase 0 ends: parity 0              phase 1 ends: parity 1
//     empty                 phase 0 ends: parity 0              phase 1 ends: parity 1
//
// The first fill does not wait: what comes before phase 0 counts as complete, with parity 1.
//
// Products (wgmma). A warpgroup, four warps, multiplies 64 rows at a time, 16 of each warp, in
// fragment.h's layout. The right operand comes from shared memory, for all four at once, and so
// does the left one unless it is in registers. A product runs in the background: until
// wait_for_product nobody may touch what it reads or writes.
#ifndef HOPPER_H
#define HOPPER_H

#include "fragment.h"
#ifdef __CUDACC__
#include <cuda.h>
#else
#define __grid_constant__
#endif

namespace
{

__device__ inline int warpgroup_index()
{
    return static_cast<int>(threadIdx.x) / 128;
}

// ---- the operations of the hardware ----

#ifdef __CUDACC__
using tensor_map = CUtensorMap;

__device__ inline uint32_t shared_address(uint32_t address)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared_memory)) + address;
}

__device__ inline void mbarrier_init(uint32_t address, int arrivals, site)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(shared_address(address)), "r"(arrivals)
                 : "memory");
}

// After it, and a barrier, others may use what this thread initialised, the copy engine too.
__device__ inline void fence_barrier_init(site = site())
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ inline void mbarrier_arrive(uint32_t address, site)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                 :
                 : "r"(shared_address(address))
                 : "memory");
}

// Arrives, and has the phase wait for so many bytes more.
__device__ inline void mbarrier_expect(uint32_t address, uint32_t bytes, site)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(shared_address(address)), "r"(bytes)
                 : "memory");
}

// Returns when the phase of that parity is complete.
__device__ inline void mbarrier_wait(uint32_t address, int parity, site)
{
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra.uni again; }"
                 :
                 : "r"(shared_address(address)), "r"(parity)
                 : "memory");
}

__device__ inline void copy_box(uint32_t to, const tensor_map &map, int col, int row, int plane,
                                uint32_t mbarrier, site)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];"
                 :
                 : "r"(shared_address(to)), "l"(&map), "r"(col), "r"(row), "r"(plane),
                   "r"(shared_address(mbarrier))
                 : "memory");
}

// A warpgroup gives registers back to its block, or takes them: `count` for each thread.
template <int count> __device__ inline void give_registers(site = site())
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(count));
}
template <int count> __device__ inline void take_registers(site = site())
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(count));
}

__device__ inline void wgmma_fence(site)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void wgmma_commit(site)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int in_flight> __device__ inline void wgmma_wait(site)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(in_flight) : "memory");
}

// To the compiler a product is done when it was issued. A register that is pinned before and after
// is not touched in between.
__device__ inline void pin(float &x)
{
    asm volatile("" : "+f"(x)::"memory");
}
__device__ inline void pin(uint32_t &x)
{
    asm volatile("" : "+r"(x)::"memory");
}

// The places of 32 and 64 accumulators in an instruction, and their registers.
#define PLACES_32                                                                                  \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "   \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PLACES_64                                                                                  \
    PLACES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
              "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define REGISTERS_8(c, i)                                                                          \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]),    \
        "+f"(c[i + 6]), "+f"(c[i + 7])
#define REGISTERS_32(c, i)                                                                         \
    REGISTERS_8(c, i), REGISTERS_8(c, i + 8), REGISTERS_8(c, i + 16), REGISTERS_8(c, i + 24)

// c [64, n] = a b^T, or c += a b^T: a [64, 16] and b [n, 16] in shared memory.
#define WGMMA_ABT(type)                                                                            \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned"             \
                 ".m64n128k16.f32." type "." type " {" PLACES_64 "}, %64, %65, p, 1, 1, 0, 0; }"   \
                 : REGISTERS_32(c, 0), REGISTERS_32(c, 32)                                         \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)))
template <int n>
__device__ inline void wgmma_abt(float *c, uint64_t a, uint64_t b, bool add, fp16, site)
{
    static_assert(n == 128, "the one width that is used");
    WGMMA_ABT("f16");
}
template <int n>
__device__ inline void wgmma_abt(float *c, uint64_t a, uint64_t b, bool add, bf16, site)
{
    static_assert(n == 128, "the one width that is used");
    WGMMA_ABT("bf16");
}

// c [64, n] += a b: a [64, 16] in registers, b [16, n] in shared memory.
#define WGMMA_AB(n, type, places, registers, a0, a1, a2, a3, b0)                                   \
    asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned"               \
                 ".m64n" n "k16.f32." type "." type " {" places "}, {" a0 ", " a1 ", " a2 ", " a3  \
                 "}, " b0 ", p, 1, 1, 1; }"                                                        \
                 : registers                                                                       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define LIST(...) __VA_ARGS__
#define WGMMA_AB_64(type)                                                                          \
    WGMMA_AB("64", type, PLACES_32, LIST(REGISTERS_32(c, 0)), "%32", "%33", "%34", "%35", "%36")
#define WGMMA_AB_128(type)                                                                         \
    WGMMA_AB("128", type, PLACES_64, LIST(REGISTERS_32(c, 0), REGISTERS_32(c, 32)), "%64", "%65",  \
             "%66", "%67", "%68")
template <int n>
__device__ inline void wgmma_ab(float *c, const uint32_t *a, uint64_t b, fp16, site)
{
    if constexpr (n == 64)
        WGMMA_AB_64("f16");
    else
        WGMMA_AB_128("f16");
}
template <int n>
__device__ inline void wgmma_ab(float *c, const uint32_t *a, uint64_t b, bf16, site)
{
    if constexpr (n == 64)
        WGMMA_AB_64("bf16");
    else
        WGMMA_AB_128("bf16");
}
#else
using emulator::copy_box;
using emulator::mbarrier_arrive;
using emulator::mbarrier_expect;
using emulator::mbarrier_init;
using emulator::mbarrier_wait;
using emulator::tensor_map;
using emulator::wgmma_commit;
using emulator::wgmma_fence;

inline uint32_t shared_address(uint32_t address)
{
    return address;
}
inline void fence_barrier_init(site where = site())
{
    emulator::fence_barrier_init(where);
}
template <int count> inline void give_registers(site where = site())
{
    emulator::set_registers(count, false, where);
}
template <int count> inline void take_registers(site where = site())
{
    emulator::set_registers(count, true, where);
}
template <int in_flight> inline void wgmma_wait(site where)
{
    emulator::wgmma_wait(in_flight, where);
}
template <class R> inline void pin(R &)
{
}
inline bool is_bf16(fp16)
{
    return false;
}
inline bool is_bf16(bf16)
{
    return true;
}
template <int n, class T>
inline void wgmma_abt(float *c, uint64_t a, uint64_t b, bool add, T, site where)
{
    emulator::wgmma(c, n, nullptr, a, b, false, is_bf16(T()), add, where);
}
template <int n, class T>
inline void wgmma_ab(float *c, const uint32_t *a, uint64_t b, T, site where)
{
    emulator::wgmma(c, n, a, 0, b, true, is_bf16(T()), true, where);
}
#endif

// ---- tiles that a copy engine fills ----

// [rows, cols] of 16-bit elements in chunks of 64 columns, each [rows, 64], one after the other:
// rows of 128 bytes, swizzled. Starts at a multiple of 1024 bytes.
template <class T, int rows, int cols> struct box_tile {
    static constexpr uint32_t chunk_bytes = rows * 128, bytes = cols / 64 * chunk_bytes;
    uint32_t start;
    __device__ explicit box_tile(uint32_t start) : start(start)
    {
    }
    __device__ uint32_t end() const
    {
        return start + bytes;
    }
    // Where the tile lies, for wgmma: its address and the distance from one chunk to the next, in
    // units of 16 bytes, as the low word of a descriptor.
    __device__ uint32_t low_word() const
    {
        return shared_address(start) / 16 | chunk_bytes / 16 << 16;
    }
};

// The high word says that 8 rows are 1024 bytes and that rows are swizzled over their 128.
__device__ inline uint64_t descriptor(uint32_t low_word, uint32_t bytes_further)
{
    return uint64_t{1 << 30 | 1024 / 16} << 32 | (low_word + bytes_further / 16);
}

// Has the copy engine fetch a tile, rows past the end of the plane being zeros. One thread calls.
template <class T, int rows, int cols>
__device__ inline void copy_tile(box_tile<T, rows, cols> tile, const tensor_map &map, int row,
                                 int plane, uint32_t full, site where = site())
{
    mbarrier_expect(full, tile.bytes, where);
    for (int chunk = 0; chunk < cols / 64; chunk++)
        copy_box(tile.start + static_cast<uint32_t>(chunk) * tile.chunk_bytes, map, 64 * chunk, row,
                 plane, full, where);
}

// Which place of a ring comes next, and the parity of its round.
template <int places> struct turn {
    int place = 0, parity = 0;
    __device__ void next()
    {
        if (++place < places) return;
        place = 0;
        parity ^= 1;
    }
};

// `places` tiles, filled by one thread and read by some warpgroups.
template <class T, int rows, int cols, int places> struct ring {
    using tile_type = box_tile<T, rows, cols>;
    // The mbarriers follow the tiles; the next tile wants a multiple of 1024 again.
    static constexpr uint32_t barriers = places * tile_type::bytes, bytes = barriers + 1024;
    uint32_t start;
    __device__ explicit ring(uint32_t start) : start(start)
    {
    }
    __device__ uint32_t end() const
    {
        return start + bytes;
    }
    __device__ tile_type tile(turn<places> at) const
    {
        return tile_type(start + static_cast<uint32_t>(at.place) * tile_type::bytes);
    }
    __device__ uint32_t full(turn<places> at) const
    {
        return start + barriers + static_cast<uint32_t>(at.place) * 16;
    }
    __device__ uint32_t empty(turn<places> at) const
    {
        return full(at) + 8;
    }
    // One thread calls, before any other uses the ring; then fence_barrier_init and a barrier.
    __device__ void init(int readers, site where = site()) const
    {
        turn<places> at;
        for (int i = 0; i < places; i++, at.next()) {
            mbarrier_init(full(at), 1, where);
            mbarrier_init(empty(at), readers, where);
        }
    }
    // The one who fills: waits until the place is free.
    __device__ void fill(turn<places> at, const tensor_map &map, int row, int plane,
                         site where = site()) const
    {
        mbarrier_wait(empty(at), at.parity ^ 1, where);
        copy_tile(tile(at), map, row, plane, full(at), where);
    }
    // A reader: the tile, once it is there.
    __device__ tile_type wait(turn<places> at, site where = site()) const
    {
        mbarrier_wait(full(at), at.parity, where);
        return tile(at);
    }
    // A warpgroup is done with it: one of its threads says so.
    __device__ void release(turn<places> at, site where = site()) const
    {
        if (threadIdx.x % 128 == 0) mbarrier_arrive(empty(at), where);
    }
};

// ---- products of a warpgroup: `rows` is 16, a warp's share of 64 ----

// s = q k^T, begun: q's rows first_row to first_row + 63.
template <class T, int rows_q, int cols, int d>
__device__ inline void start_product_abt(accumulator<16, cols> &s, box_tile<T, rows_q, d> q,
                                         int first_row, box_tile<T, cols, d> k, site where = site())
{
    const uint32_t a = q.low_word() + static_cast<uint32_t>(first_row) * 128 / 16;
    const uint32_t b = k.low_word();
    UNROLL for (int i = 0; i < cols / 2; i++) pin(s.c[0][i / 4][i % 4]);
    wgmma_fence(where);
    UNROLL for (uint32_t i = 0; i < d / 16; i++) // 16 columns are 32 bytes of a row
        wgmma_abt<cols>(&s.c[0][0][0], descriptor(a, i / 4 * q.chunk_bytes + i % 4 * 32),
                        descriptor(b, i / 4 * k.chunk_bytes + i % 4 * 32), i > 0, T(), where);
    wgmma_commit(where);
}

// acc += p v, begun.
template <class T, int cols, int d>
__device__ inline void start_product(accumulator<16, d> &acc, left_operand<T, 16, cols> &p,
                                     box_tile<T, cols, d> v, site where = site())
{
    const uint32_t b = v.low_word();
    UNROLL for (int i = 0; i < d / 2; i++) pin(acc.c[0][i / 4][i % 4]);
    UNROLL for (int i = 0; i < cols / 4; i++) pin(p.a[0][i / 4][i % 4]);
    wgmma_fence(where);
    UNROLL for (uint32_t i = 0; i < cols / 16; i++) // 16 keys are 16 rows of 128 bytes
        wgmma_ab<d>(&acc.c[0][0][0], p.a[0][i], descriptor(b, i * 16 * 128), T(), where);
    wgmma_commit(where);
}

// Waits until at most `in_flight` of the products begun last are not done: s or acc, and p, of one
// that is, may be touched again.
template <int in_flight, int cols>
__device__ inline void wait_for_product(accumulator<16, cols> &s, site where = site())
{
    wgmma_wait<in_flight>(where);
    UNROLL for (int i = 0; i < cols / 2; i++) pin(s.c[0][i / 4][i % 4]);
}
template <int in_flight, class T, int cols, int d>
__device__ inline void wait_for_product(accumulator<16, d> &acc, left_operand<T, 16, cols> &p,
                                        site where = site())
{
    wait_for_product<in_flight>(acc, where);
    UNROLL for (int i = 0; i < cols / 4; i++) pin(p.a[0][i / 4][i % 4]);
}

// p rounded to a left operand.
template <class T, int cols>
__device__ inline void round_left(left_operand<T, 16, cols> &a, const accumulator<16, cols> &p)
{
    UNROLL for (int i = 0; i < cols / 4; i++)
    {
        const float *c = &p.c[0][i / 2][i % 2 * 2];
        a.a[0][i / 4][i % 4] = round_pair(c[0], c[1], T());
    }
}

} // namespace
#endif
