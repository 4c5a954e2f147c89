// hopper.h: what compute capability 9.0 does by itself, operation by operation: copies of boxes
// (TMA) that report to an mbarrier, products of a warpgroup (wgmma), registers that change hands.
// PTX stands here, in tile.h, async.h and fragment.h alone; without nvcc the emulator does the
// same.
//
// warpgroup.h makes tiles, rings and products of them, and draws how they go together.
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
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void mbarrier_arrive(uint32_t address, site)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                 :
                 : "r"(shared_address(address))
                 : "memory");
}

// Arrives, and is expected no more: later phases take one arrival less.
__device__ inline void mbarrier_arrive_drop(uint32_t address, site)
{
    asm volatile("mbarrier.arrive_drop.shared::cta.b64 _, [%0];"
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

// Of so many threads, whole warps of the block that name the same of its barriers 0 to 15.
__device__ inline void named_barrier(int id, int threads, site)
{
    asm volatile("barrier.sync.aligned %0, %1;" : : "r"(id), "r"(threads) : "memory");
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

// Two blocks that run side by side, a cluster (launch_early in gpu_runtime.h), see each other's
// shared memory. Where a block's own begins: the emulator addresses both as one.
__device__ inline uint32_t own_memory()
{
    return 0;
}
// Arrives at the other block's mbarrier that lies where `address` is in this one.
__device__ inline void mbarrier_arrive_at_peer(uint32_t address, site)
{
    asm volatile("{ .reg .b32 peer; mapa.shared::cluster.u32 peer, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [peer]; }"
                 :
                 : "r"(shared_address(address)), "r"(blockIdx.x % 2 ^ 1)
                 : "memory");
}
// copy_box to both blocks; each one's mbarrier is told.
__device__ inline void copy_box_to_both(uint32_t to, const tensor_map &map, int col, int row,
                                        int plane, uint32_t mbarrier, site)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;"
                 :
                 : "r"(shared_address(to)), "l"(&map), "r"(col), "r"(row), "r"(plane),
                   "r"(shared_address(mbarrier)), "h"(uint16_t{3})
                 : "memory");
}
// Of all threads of both that have not returned.
__device__ inline void cluster_barrier(site = site())
{
    asm volatile("barrier.cluster.arrive;\n"
                 "barrier.cluster.wait;" ::
                     : "memory");
}

// For a launch that may begin before those queued before it have ended (launch_early in
// gpu_runtime.h): waits for them. Who has not waited must not touch global memory, unless it was
// told by someone who has.
__device__ inline void wait_for_launches_before(site = site())
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
// The next such launch may begin, as far as there is room for it.
__device__ inline void let_next_launch_begin()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// A warpgroup gives registers back to its block, or takes them (setmaxnreg): each of its threads
// has `count` afterwards.
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

#define LIST(...) __VA_ARGS__

// c [64, n] = a b^T, or c += a b^T: a [64, 16] and b [n, 16] in shared memory.
#define WGMMA_ABT(n, type, places, registers, a0, b0, add0)                                        \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " add0 ", 0; wgmma.mma_async.sync.aligned"        \
                 ".m64n" n "k16.f32." type "." type " {" places "}, " a0 ", " b0                   \
                 ", p, 1, 1, 0, 0; }"                                                              \
                 : registers                                                                       \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)))
#define WGMMA_ABT_64(type)                                                                         \
    WGMMA_ABT("64", type, PLACES_32, LIST(REGISTERS_32(c, 0)), "%32", "%33", "%34")
#define WGMMA_ABT_128(type)                                                                        \
    WGMMA_ABT("128", type, PLACES_64, LIST(REGISTERS_32(c, 0), REGISTERS_32(c, 32)), "%64", "%65", \
              "%66")

// c [64, n] += a b: a [64, 16] in registers, b [16, n] in shared memory.
#define WGMMA_AB(n, type, places, registers, a0, a1, a2, a3, b0)                                   \
    asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned"               \
                 ".m64n" n "k16.f32." type "." type " {" places "}, {" a0 ", " a1 ", " a2 ", " a3  \
                 "}, " b0 ", p, 1, 1, 1; }"                                                        \
                 : registers                                                                       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define WGMMA_AB_64(type)                                                                          \
    WGMMA_AB("64", type, PLACES_32, LIST(REGISTERS_32(c, 0)), "%32", "%33", "%34", "%35", "%36")
#define WGMMA_AB_128(type)                                                                         \
    WGMMA_AB("128", type, PLACES_64, LIST(REGISTERS_32(c, 0), REGISTERS_32(c, 32)), "%64", "%65",  \
             "%66", "%67", "%68")

#define WGMMA_OF(T, type)                                                                          \
    template <int n>                                                                               \
    __device__ inline void wgmma_abt(float *c, uint64_t a, uint64_t b, bool add, T, site)          \
    {                                                                                              \
        if constexpr (n == 64)                                                                     \
            WGMMA_ABT_64(type);                                                                    \
        else                                                                                       \
            WGMMA_ABT_128(type);                                                                   \
    }                                                                                              \
    template <int n>                                                                               \
    __device__ inline void wgmma_ab(float *c, const uint32_t *a, uint64_t b, T, site)              \
    {                                                                                              \
        if constexpr (n == 64)                                                                     \
            WGMMA_AB_64(type);                                                                     \
        else                                                                                       \
            WGMMA_AB_128(type);                                                                    \
    }
WGMMA_OF(fp16, "f16")
WGMMA_OF(bf16, "bf16")
#else
using emulator::copy_box;
using emulator::copy_box_to_both;
using emulator::mbarrier_arrive;
using emulator::mbarrier_arrive_drop;
using emulator::mbarrier_expect;
using emulator::mbarrier_init;
using emulator::mbarrier_wait;
using emulator::own_memory;
using emulator::tensor_map;
using emulator::wgmma_commit;
using emulator::wgmma_fence;

inline uint32_t shared_address(uint32_t address)
{
    return address;
}
inline void mbarrier_arrive_at_peer(uint32_t address, site where)
{
    emulator::mbarrier_arrive(emulator::peer(address), where);
}
inline void cluster_barrier(site where = site())
{
    emulator::cluster_barrier(where);
}
inline void fence_barrier_init(site where = site())
{
    emulator::fence_barrier_init(where);
}
inline void named_barrier(int id, int threads, site where)
{
    emulator::named_barrier_sync(id, threads, where);
}
inline void wait_for_launches_before(site where = site())
{
    emulator::wait_for_launches_before(where);
}
inline void let_next_launch_begin()
{
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

} // namespace
#endif
