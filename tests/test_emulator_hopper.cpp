// What the emulator knows of compute capability 9.0: copies of boxes, mbarriers, products of a
// warpgroup, named barriers; and wrong kernels that must be caught, whatever the order.
#include <criterion/criterion.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "emulated.h"
#include "half.h"
#include "random.h"
#include "warpgroup.h"

namespace
{

using emulator::site;
using emulator::tensor_map;

constexpr uint64_t seeds = 12;

// A kernel's failure must say one of `words` under every seed.
template <class F> void expect_caught(F launched, std::initializer_list<const char *> words)
{
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        emulator::current_settings().seed = seed;
        const std::string message = launched();
        bool said = false;
        for (const char *word : words) said |= says(message, word);
        cr_expect(said, "seed %d, not '%s': '%s'", static_cast<int>(seed), *words.begin(),
                  message.c_str());
        cr_expect(says(message, "thread") && says(message, "test_emulator_hopper.cpp"), "%s",
                  message.c_str());
    }
}

template <class F> void expect_caught(F launched, const char *word)
{
    expect_caught(launched, {word});
}

uint64_t descriptor(uint32_t start, uint32_t leading, uint32_t stride)
{
    return start / 16 | uint64_t{leading / 16} << 16 | uint64_t{stride / 16} << 32 | 1ull << 62;
}

uint16_t bits_of(float x, bool bf16)
{
    return bf16 ? bf16_from_float(x) : fp16_from_float(x);
}

float float_of(uint16_t bits, bool bf16)
{
    return bf16 ? bf16_to_float(bits) : fp16_to_float(bits);
}

// Device memory: 16-bit elements at a multiple of 16 bytes, drawn from a normal distribution.
struct drawn {
    std::vector<float> values;
    std::vector<uint4> memory;
    bool bf16;
    drawn(size_t count, bool bf16, uint64_t seed) : values(count), memory(count / 8 + 1), bf16(bf16)
    {
        random_stream stream;
        random_seed(&stream, seed);
        random_normal(&stream, values.data(), static_cast<int64_t>(count));
        for (size_t i = 0; i < count; i++) {
            data()[i] = bits_of(values[i], bf16);
            values[i] = float_of(data()[i], bf16);
        }
    }
    uint16_t *data()
    {
        return reinterpret_cast<uint16_t *>(memory.data());
    }
};

// Thread 0 initialises `count` mbarriers from `address` on, as it should be.
void init_mbarriers(uint32_t address, int count, int arrivals)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < count; i++)
            emulator::mbarrier_init(address + 8 * static_cast<uint32_t>(i), arrivals, site());
        emulator::fence_barrier_init(site());
    }
    __syncthreads();
}

// ---- copies of boxes ----------------------------------------------------------------------------

enum box_fault {
    NO_FAULT,
    NO_WAIT,
    WRONG_PARITY,
    BYTES_MISSING,
    NOT_EXPECTED,
    NOT_INITIALISED,
    NOT_FENCED,
    NO_BARRIER,
    WRITTEN_BY_HAND,
    WRITTEN_IN_FLIGHT,
    NOBODY_WAITS,
};

// Every block counts the tiles it gets, in visits [planes, tiles], and its own work: a tile under
// causality as much as there are tiles up to it.
// Counts how often every 64 rows come, what each block has to do, and tiles longer than the one
// before, if the last need not come first.
void rounds_kernel(int units, int planes, int consumers, int blocks, bool last_first, int *visits,
                   int *work, int *longer)
{
    if (threadIdx.x > 0 || blockIdx.x % static_cast<unsigned>(blocks)) return;
    int before = blocks * consumers * 64;
    for (tile_of_round at(units * 64, planes, consumers, blocks, last_first); at.exists;
         at.next()) {
        for (int u = at.row / 64; u < at.end / 64 && u < units; u++)
            __atomic_fetch_add(&visits[at.plane * units + u], 1, __ATOMIC_RELAXED);
        work[blockIdx.x] += last_first ? at.row / 64 + blocks * consumers : (at.end - at.row) / 64;
        if (!last_first && at.end - at.row > before)
            __atomic_fetch_add(longer, 1, __ATOMIC_RELAXED);
        before = at.end - at.row;
    }
}

// A launch that may begin early: a box, or the wait for the launches before it first.
void early_kernel(tensor_map map, bool waits)
{
    init_mbarriers(0, 1, 1);
    if (threadIdx.x > 0) return;
    if (waits) wait_for_launches_before();
    emulator::mbarrier_expect(0, 16 * 128, site());
    emulator::copy_box(1024, map, 0, 0, 0, 0, site());
    emulator::mbarrier_wait(0, 0, site());
}

enum pair_fault {
    PAIR_RIGHT,
    NO_CLUSTER_BARRIER,
    OTHERS_BYTES,
    WAITS_AT_THE_OTHER,
    ENDS_BEFORE_COPIES,
    ENDS_BEFORE_ARRIVALS
};

// Two blocks of 32 threads: each copies 16 rows to both, and all that arrived goes to out
// [2, 32, 64].
void pair_kernel(tensor_map map, uint16_t *out, pair_fault fault)
{
    const uint32_t own = emulator::own_memory(), full = own + 512, tile = own + 1024, box = 2048;
    const unsigned id = threadIdx.x, rank = blockIdx.x;
    if (id == 0) {
        emulator::mbarrier_init(full, 1, site());
        emulator::mbarrier_init(full + 8, 2, site());
        emulator::fence_barrier_init(site());
    }
    if (fault == NO_CLUSTER_BARRIER)
        __syncthreads();
    else
        emulator::cluster_barrier(site());
    if (id == 0) {
        if (fault == ENDS_BEFORE_COPIES && rank == 0) return;
        emulator::mbarrier_expect(full, 2 * box, site());
        emulator::copy_box_to_both(tile + rank * box, map, 0, static_cast<int>(rank) * 16, 0, full,
                                   site());
    }
    if (fault == ENDS_BEFORE_COPIES && rank == 0) return;
    emulator::mbarrier_wait(full, 0, site());
    for (unsigned at = id; at < 32 * 64; at += 32) {
        const unsigned r = at / 64, c = at % 64;
        const uint32_t from = tile + r * 128 + ((c / 8) ^ (r % 8)) * 16 + c % 8 * 2;
        emulator::shared_read(out + rank * 32 * 64 + at,
                              fault == OTHERS_BYTES ? emulator::peer(from) : from, 2, site());
    }
    if (fault == WAITS_AT_THE_OTHER) emulator::mbarrier_wait(emulator::peer(full), 0, site());
    if (id > 0) return; // who has returned is not waited for
    emulator::mbarrier_arrive(emulator::peer(full + 8), site());
    if (fault == ENDS_BEFORE_ARRIVALS && rank == 1) {
        emulator::mbarrier_wait(full + 8, 1, site()); // passes: nothing comes before phase 0
        for (int i = 0; i < 2000; i++) emulator::mbarrier_arrive(full + 8, site());
        emulator::mbarrier_arrive(emulator::peer(full + 8), site());
    }
    if (fault != ENDS_BEFORE_ARRIVALS) emulator::cluster_barrier(site());
}

std::string launch_pair(drawn &x, uint16_t *out, pair_fault fault, unsigned blocks = 2)
{
    tensor_map map = {x.data(), 1, 32, 64, 16};
    void *arguments[] = {&map, &out, &fault};
    const cudaError_t error = emulator::launch_kernel(pair_kernel, dim3(blocks), dim3(32),
                                                      arguments, 8192, nullptr, false, 2);
    return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

// 32 threads: a box of 16 rows to 1024, and all that arrived to out [16, 64].
void box_kernel(tensor_map map, int col, int row, int plane, uint16_t *out, box_fault fault)
{
    const uint32_t full = 512, tile = 1024, bytes = 16 * 128;
    const unsigned id = threadIdx.x;
    if (id == 0 && fault != NOT_INITIALISED) emulator::mbarrier_init(full, 1, site());
    if (id == 0 && fault != NOT_FENCED) emulator::fence_barrier_init(site());
    if (fault != NO_BARRIER) __syncthreads();
    const uint16_t one = 1;
    if (id == 0 && fault == WRITTEN_BY_HAND) emulator::shared_write(tile, &one, 2, site());
    if (id == 0) {
        if (fault != NOT_EXPECTED)
            emulator::mbarrier_expect(full, bytes + (fault == BYTES_MISSING) * 64, site());
        emulator::copy_box(tile, map, col, row, plane, full, site());
    }
    __syncwarp();
    if (fault == WRITTEN_IN_FLIGHT) emulator::shared_write(tile + 2 * id, &one, 2, site());
    if (fault == NOBODY_WAITS) return;
    if (fault != NO_WAIT) emulator::mbarrier_wait(full, fault == WRONG_PARITY, site());
    for (unsigned at = id; at < 16 * 64; at += 32) {
        const unsigned r = at / 64, c = at % 64;
        emulator::shared_read(out + at, tile + r * 128 + ((c / 8) ^ (r % 8)) * 16 + c % 8 * 2, 2,
                              site());
    }
}

std::string launch_box(drawn &x, int rows, int col, int row, int plane, uint16_t *out,
                       box_fault fault)
{
    const tensor_map map = {x.data(), 2, rows, 128, 16};
    return launch(box_kernel, 1, 32, 4096, map, col, row, plane, out, fault);
}

// ---- products -----------------------------------------------------------------------------------

struct product_case {
    int n;
    bool a_shared, b_transposed, bf16;
};

// One warpgroup: c [64, n] = a [64, 64] b, where b is [n, 64], or [64, n] if transposed. A lies at
// 0, b from 8192 on, in chunks of 64 columns.
void product_kernel(tensor_map a_map, tensor_map b_map, const uint16_t *a, float *c,
                    product_case test)
{
    const uint32_t full = 8192 + 32768, b_start = 8192;
    const uint32_t chunk = static_cast<uint32_t>(b_map.box_rows) * 128;
    const int n = test.n, lane = static_cast<int>(threadIdx.x % 32),
              row = static_cast<int>(threadIdx.x / 32) * 16 + lane / 4;
    init_mbarriers(full, 1, 1);
    if (threadIdx.x == 0) {
        const uint32_t chunks = static_cast<uint32_t>(b_map.cols) / 64;
        emulator::mbarrier_expect(full, 8192 + chunks * chunk, site());
        emulator::copy_box(0, a_map, 0, 0, 0, full, site());
        for (uint32_t i = 0; i < chunks; i++)
            emulator::copy_box(b_start + i * chunk, b_map, static_cast<int>(i) * 64, 0, 0, full,
                               site());
    }
    emulator::mbarrier_wait(full, 0, site());
    float sum[128];
    uint32_t x[4][4];
    for (int k = 0; k < 4; k++)
        for (int r = 0; r < 4; r++)
            memcpy(&x[k][r], a + (row + r % 2 * 8) * 64 + k * 16 + lane % 4 * 2 + r / 2 * 8, 4);
    emulator::wgmma_fence(site());
    for (uint32_t k = 0; k < 4; k++)
        emulator::wgmma(sum, n, test.a_shared ? nullptr : x[k], descriptor(k * 32, 0, 1024),
                        test.b_transposed ? descriptor(b_start + k * 2048, chunk, 1024)
                                          : descriptor(b_start + k * 32, 0, 1024),
                        test.b_transposed, test.bf16, k > 0, site());
    emulator::wgmma_commit(site());
    emulator::wgmma_wait(0, site());
    for (int i = 0; i < n / 2; i++)
        c[(row + i / 2 % 2 * 8) * n + i / 4 * 8 + lane % 4 * 2 + i % 2] = sum[i];
}

void check_product(const product_case &test)
{
    const int n = test.n;
    drawn a(64 * 64, test.bf16, 1), b(static_cast<size_t>(n * 64), test.bf16, 2);
    std::vector<float> c(static_cast<size_t>(64 * n));
    const tensor_map a_map = {a.data(), 1, 64, 64, 64},
                     b_map = test.b_transposed ? tensor_map{b.data(), 1, 64, n, 64}
                                               : tensor_map{b.data(), 1, n, 64, n};
    cr_assert(fine(launch(product_kernel, 1, 128, 8192 + 32768 + 8, a_map, b_map,
                          static_cast<const uint16_t *>(a.data()), c.data(), test)));
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int k = 0; k < 64; k++)
                sum +=
                    static_cast<double>(a.values[static_cast<size_t>(i * 64 + k)]) *
                    static_cast<double>(
                        b.values[static_cast<size_t>(test.b_transposed ? k * n + j : j * 64 + k)]);
            cr_assert_float_eq(static_cast<double>(c[static_cast<size_t>(i * n + j)]), sum, 2e-5,
                               "n %d, shared %d, transposed %d, bf16 %d: %d, %d", n, test.a_shared,
                               test.b_transposed, test.bf16, i, j);
        }
}

// ---- what may not be done while a product is in flight ------------------------------------------

enum flight_fault {
    FLIGHT_RIGHT,
    READ_EARLY, // no fault, but NaN
    TOUCHED,
    TOUCHED_BETWEEN,
    OPERAND_CHANGED,
    NO_FENCE,
    NO_FENCE_AFTER_WAIT,
    NOT_COMMITTED,
    NEVER_WAITED,
    COMMITTED_BY_SOME,
    OTHER_DESCRIPTOR,
    PART_OF_ACCUMULATORS,
    NO_SWIZZLE,
    BAD_N,
    BY_SOME,
    OUTSIDE,
};

// c = 1 b by one warpgroup, b [64, 64] in shared memory, twice; out [128, 2]: element 0 of c before
// and after the wait.
void flight_kernel(tensor_map map, float *out, flight_fault fault)
{
    const uint32_t full = 8192;
    const unsigned id = threadIdx.x;
    init_mbarriers(full, 1, 1);
    if (id == 0) {
        emulator::mbarrier_expect(full, 8192, site());
        emulator::copy_box(0, map, 0, 0, 0, full, site());
    }
    emulator::mbarrier_wait(full, 0, site());
    float c[32] = {};
    uint32_t a[4] = {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00};
    uint64_t b = descriptor(0, 0, 1024);
    if (fault == OTHER_DESCRIPTOR && id == 77) b = descriptor(1024, 0, 1024);
    if (fault == NO_SWIZZLE) b &= ~(3ull << 62);
    if (fault == OUTSIDE) b = descriptor(7168, 0, 1024);
    if (fault == BY_SOME && id == 100) return;
    if (fault != NO_FENCE) emulator::wgmma_fence(site());
    emulator::wgmma(c, fault == BAD_N ? 63 : 64, a, 0, b, false, false, true, site());
    if (fault == TOUCHED_BETWEEN && id == 5) c[3] *= 2;
    if (fault == PART_OF_ACCUMULATORS)
        emulator::wgmma(c + 4, 32, a, 0, b, false, false, true, site());
    emulator::wgmma(c, 64, a, 0, b, false, false, true, site());
    if (fault != NOT_COMMITTED && (fault != COMMITTED_BY_SOME || id < 64))
        emulator::wgmma_commit(site());
    out[2 * id] = c[0];
    if (fault == TOUCHED && id == 9) c[31] += 1;
    if (fault == OPERAND_CHANGED && id == 9) a[2] = 0;
    if (fault == NEVER_WAITED) return;
    emulator::wgmma_wait(0, site());
    out[2 * id + 1] = c[0];
    if (fault == NO_FENCE_AFTER_WAIT) {
        emulator::wgmma(c, 64, a, 0, b, false, false, true, site());
        emulator::wgmma_commit(site());
        emulator::wgmma_wait(0, site());
    }
}

// Two products in two groups: wait(1) brings the first back and leaves the second.
void two_groups_kernel(tensor_map map, float *out)
{
    const uint32_t full = 8192;
    init_mbarriers(full, 1, 1);
    if (threadIdx.x == 0) {
        emulator::mbarrier_expect(full, 8192, site());
        emulator::copy_box(0, map, 0, 0, 0, full, site());
    }
    emulator::mbarrier_wait(full, 0, site());
    float c[2][32] = {};
    const uint32_t a[4] = {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00};
    emulator::wgmma_fence(site());
    for (int i = 0; i < 2; i++) {
        emulator::wgmma(c[i], 64, a, 0, descriptor(0, 0, 1024), false, false, i > 0, site());
        emulator::wgmma_commit(site());
    }
    emulator::wgmma_wait(1, site());
    if (threadIdx.x == 0) out[0] = c[0][0], out[1] = c[1][0];
    emulator::wgmma_wait(0, site());
    if (threadIdx.x == 0) out[2] = c[0][0], out[3] = c[1][0];
}

// ---- a ring: one thread copies, a warpgroup multiplies ------------------------------------------

enum ring_fault {
    RING_RIGHT,
    NO_FULL_WAIT,
    WRONG_FULL_PARITY,
    NO_EMPTY_WAIT,
    WRONG_EMPTY_PARITY,
    RELEASED_EARLY,
    NEVER_RELEASED,
    RELEASED_TWICE,
};

// c [64, 64] = sum over `tiles` tiles [64, 64] of 1 b, by way of two places in shared memory.
// Threads 0 to 127 multiply, thread 128 copies.
void ring_kernel(tensor_map map, int tiles, float *out, ring_fault fault)
{
    const uint32_t full = 16384, empty = full + 16;
    init_mbarriers(full, 4, 1);
    if (threadIdx.x >= 128) {
        for (int i = 0; i < tiles && threadIdx.x == 128; i++) {
            const uint32_t s = static_cast<uint32_t>(i % 2);
            const int parity = (i / 2 % 2) ^ (fault != WRONG_EMPTY_PARITY);
            if (fault != NO_EMPTY_WAIT)
                emulator::mbarrier_wait(empty + 8 * s, i < 2 ? 1 : parity, site());
            emulator::mbarrier_expect(full + 8 * s, 8192, site());
            emulator::copy_box(s * 8192, map, 0, i * 64, 0, full + 8 * s, site());
        }
        return;
    }
    float c[32] = {};
    const uint32_t a[4] = {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00};
    for (int i = 0; i < tiles; i++) {
        const uint32_t s = static_cast<uint32_t>(i % 2);
        const auto release = [&] {
            if (threadIdx.x == 0) emulator::mbarrier_arrive(empty + 8 * s, site());
        };
        if (fault != NO_FULL_WAIT)
            emulator::mbarrier_wait(full + 8 * s, (i / 2 % 2) ^ (fault == WRONG_FULL_PARITY),
                                    site());
        emulator::wgmma_fence(site());
        for (uint32_t k = 0; k < 4; k++)
            emulator::wgmma(c, 64, a, 0, descriptor(s * 8192 + k * 32, 0, 1024), false, false, true,
                            site());
        emulator::wgmma_commit(site());
        if (fault == RELEASED_EARLY) release();
        emulator::wgmma_wait(0, site());
        if (fault != RELEASED_EARLY && fault != NEVER_RELEASED) release();
        if (fault == RELEASED_TWICE) release();
    }
    for (int i = 0; i < 32; i++) out[threadIdx.x * 32 + static_cast<unsigned>(i)] = c[i];
}

std::string launch_ring(drawn &b, int tiles, float *out, ring_fault fault)
{
    const tensor_map map = {b.data(), 1, tiles * 64, 64, 64};
    return launch(ring_kernel, 1, 256, 16384 + 32, map, tiles, out, fault);
}

// The same, but the tiles are read by ldmatrix, and each of four warps releases them. If `early`,
// before it reads; the next copy then takes its time, so that it does no visible harm.
void ldmatrix_ring_kernel(tensor_map map, int tiles, bool early)
{
    const uint32_t full = 16384, empty = full + 16, pastime = full + 32;
    if (threadIdx.x == 0) {
        for (uint32_t s = 0; s < 2; s++) {
            emulator::mbarrier_init(full + 8 * s, 1, site());
            emulator::mbarrier_init(empty + 8 * s, 4, site());
        }
        emulator::mbarrier_init(pastime, 1, site());
        emulator::fence_barrier_init(site());
    }
    __syncthreads();
    for (int i = 0; i < tiles; i++) {
        const uint32_t s = static_cast<uint32_t>(i % 2), lane = threadIdx.x % 32;
        const int parity = i / 2 % 2;
        if (threadIdx.x == 128) {
            emulator::mbarrier_wait(empty + 8 * s, parity ^ 1, site());
            for (int j = 0; early && j < 2000; j++) emulator::mbarrier_arrive(pastime, site());
            emulator::mbarrier_expect(full + 8 * s, 8192, site());
            emulator::copy_box(s * 8192, map, 0, i * 64, 0, full + 8 * s, site());
        } else if (threadIdx.x < 128) {
            uint32_t x[4];
            emulator::mbarrier_wait(full + 8 * s, parity, site());
            __syncwarp();
            if (early && lane == 0) emulator::mbarrier_arrive(empty + 8 * s, site());
            emulator::ldmatrix_x4(x, s * 8192 + lane * 128, false, site());
            if (!early && lane == 0) emulator::mbarrier_arrive(empty + 8 * s, site());
        }
    }
}

// ---- mbarriers and named barriers ---------------------------------------------------------------

enum mbarrier_fault {
    TWICE,
    MISALIGNED,
    TOO_MANY,
    NOBODY_COMES,
    BAD_PARITY,
    UNSEEN,
    DROPPED,
    STILL_EXPECTED,
    ALL_DROPPED
};

void mbarrier_kernel(mbarrier_fault fault)
{
    if (threadIdx.x == 0) {
        emulator::mbarrier_init(fault == MISALIGNED ? 4 : 8, 2, site());
        if (fault == TWICE) emulator::mbarrier_init(8, 2, site());
        emulator::fence_barrier_init(site());
    }
    if (fault != UNSEEN) __syncthreads();
    if (fault == UNSEEN && threadIdx.x == 40) emulator::mbarrier_arrive(8, site());
    if (fault == TOO_MANY && threadIdx.x < 3) emulator::mbarrier_expect(8, 16, site());
    if (fault == NOBODY_COMES && threadIdx.x < 5) emulator::mbarrier_arrive(8, site());
    if (fault == NOBODY_COMES) emulator::mbarrier_wait(8, 0, site());
    if (fault == BAD_PARITY) emulator::mbarrier_wait(8, 2, site());
    // Two arrivals in the first phase; in the second one, if the other was dropped.
    if (fault == DROPPED && threadIdx.x == 0) emulator::mbarrier_arrive_drop(8, site());
    if (fault == STILL_EXPECTED && threadIdx.x == 0) emulator::mbarrier_arrive(8, site());
    if ((fault == DROPPED || fault == STILL_EXPECTED) && threadIdx.x == 32)
        for (int parity = 0; parity < 2; parity++) {
            emulator::mbarrier_arrive(8, site());
            emulator::mbarrier_wait(8, parity, site());
        }
    if (fault == ALL_DROPPED && threadIdx.x < 2) emulator::mbarrier_arrive_drop(8, site());
}

enum named_fault {
    NAMED_RIGHT,
    NO_SYNC,
    ARRIVES_ONLY,
    OTHER_COUNT,
    BARRIER_0,
    A_WARP_SHORT,
    AGAIN
};

// Warps 0 and 1 write, warps 2 and 3 read it: the writers only arrive.
void named_kernel(named_fault fault)
{
    const unsigned id = threadIdx.x;
    uint16_t value = static_cast<uint16_t>(id);
    const int barrier = fault == BARRIER_0 ? 0 : 2;
    if (id < 64) {
        emulator::shared_write(2 * id, &value, 2, site());
        if (fault == A_WARP_SHORT && id < 32) return;
        emulator::named_barrier_arrive(barrier, fault == OTHER_COUNT ? 64 : 128, site());
        if (fault == AGAIN) emulator::named_barrier_arrive(barrier, 128, site());
        return;
    }
    if (fault == ARRIVES_ONLY)
        emulator::named_barrier_arrive(barrier, 128, site());
    else if (fault != NO_SYNC)
        emulator::named_barrier_sync(barrier, 128, site());
    emulator::shared_read(&value, 2 * (id - 64), 2, site());
}

// Two halves of a block exchange by a barrier of their own, many times.
void halves_kernel(int *wrong)
{
    const unsigned half = threadIdx.x / 64, in_half = threadIdx.x % 64, start = half * 128;
    for (unsigned round = 0; round < 8; round++) {
        uint16_t value = static_cast<uint16_t>(in_half + round);
        emulator::shared_write(start + 2 * in_half, &value, 2, site());
        emulator::named_barrier_sync(static_cast<int>(half) + 1, 64, site());
        emulator::shared_read(&value, start + (in_half + 32) % 64 * 2, 2, site());
        emulator::named_barrier_sync(static_cast<int>(half) + 1, 64, site());
        if (value != (in_half + 32) % 64 + round) *wrong = 1;
    }
}

void registers_kernel(int producer, int consumer, bool again, bool some)
{
    if (some && threadIdx.x == 3) return;
    if (threadIdx.x < 128)
        emulator::set_registers(producer, false, site());
    else
        emulator::set_registers(consumer, true, site());
    if (again && threadIdx.x < 128) emulator::set_registers(producer, false, site());
}

} // namespace

Test(emulator_hopper, does_a_box_arrive_swizzled_and_as_zeros_past_the_end)
{
    drawn x(2 * 40 * 128, false, 3);
    const struct {
        int col, row, plane;
    } boxes[] = {{0, 0, 0}, {64, 5, 1}, {64, 32, 0}, {0, 40, 1}};
    for (const auto &box : boxes)
        for (uint64_t seed = 1; seed <= seeds; seed++) {
            uint16_t out[16 * 64];
            emulator::current_settings().seed = seed;
            cr_assert(fine(launch_box(x, 40, box.col, box.row, box.plane, out, NO_FAULT)));
            for (int r = 0; r < 16; r++)
                for (int c = 0; c < 64; c++) {
                    const int row = box.row + r;
                    cr_assert_eq(out[r * 64 + c],
                                 row < 40 ? x.data()[(box.plane * 40 + row) * 128 + box.col + c]
                                          : 0);
                }
        }
}

Test(emulator_hopper, is_a_box_that_hardware_refuses_refused)
{
    drawn x(2 * 40 * 128, false, 3);
    uint16_t out[16 * 64];
    for (const int col : {32, 128, -64})
        expect_caught([&] { return launch_box(x, 40, col, 0, 0, out, NO_FAULT); }, "column");
    expect_caught([&] { return launch_box(x, 40, 0, -1, 0, out, NO_FAULT); }, "row -1");
    expect_caught([&] { return launch_box(x, 40, 0, 0, 2, out, NO_FAULT); }, "plane 2");
    const tensor_map tall = {x.data(), 2, 40, 128, 257}, odd = {x.data() + 1, 2, 40, 128, 16};
    for (const tensor_map &map : {tall, odd})
        expect_caught(
            [&] {
                return launch(box_kernel, 1, 32, 4096, map, 0, 0, 0, static_cast<uint16_t *>(out),
                              NO_FAULT);
            },
            "copies boxes of");
    const tensor_map map = {x.data(), 2, 40, 128, 16};
    expect_caught(
        [&] {
            return launch(box_kernel, 1, 32, 2048, map, 0, 0, 0, static_cast<uint16_t *>(out),
                          NO_FAULT);
        },
        "shared memory, which has 2048");
}

Test(emulator_hopper, is_a_read_before_the_wait_caught)
{
    drawn x(2 * 40 * 128, false, 3);
    uint16_t out[16 * 64];
    expect_caught([&] { return launch_box(x, 40, 0, 0, 0, out, NO_WAIT); }, "has not waited for");
}

// It passes at once, or, where the copy was faster, never.
Test(emulator_hopper, is_a_wrong_parity_caught)
{
    drawn x(2 * 40 * 128, false, 3), b(4 * 64 * 64, false, 5);
    uint16_t out[16 * 64];
    std::vector<float> c(128 * 32);
    expect_caught([&] { return launch_box(x, 40, 0, 0, 0, out, WRONG_PARITY); },
                  {"has not waited for", "phase 1 of the mbarrier at 512"});
    expect_caught([&] { return launch_ring(b, 4, c.data(), WRONG_FULL_PARITY); },
                  {"has not waited for", "phase 1 of the mbarrier at 16384", "nobody has written"});
    expect_caught([&] { return launch_ring(b, 4, c.data(), WRONG_EMPTY_PARITY); },
                  {"overwrites what", "is stuck", "arrives once too often", "has not waited for"});
}

Test(emulator_hopper, is_a_write_into_a_box_in_flight_caught)
{
    drawn x(2 * 40 * 128, false, 3);
    uint16_t out[16 * 64];
    expect_caught([&] { return launch_box(x, 40, 0, 0, 0, out, WRITTEN_IN_FLIGHT); },
                  {"is on its way", "has not waited for it"});
    expect_caught([&] { return launch_box(x, 40, 0, 0, 0, out, WRITTEN_BY_HAND); },
                  "copies a box over bytes that thread 0 wrote");
}

Test(emulator_hopper, are_missing_bytes_reported_as_stuck)
{
    drawn x(2 * 40 * 128, false, 3);
    uint16_t out[16 * 64];
    expect_caught([&] { return launch_box(x, 40, 0, 0, 0, out, BYTES_MISSING); },
                  "phase 0 of the mbarrier at 512 (0 arrivals and 64 bytes missing)");
    expect_caught([&] { return launch_box(x, 40, 0, 0, 0, out, NOT_EXPECTED); },
                  "phase 0 of the mbarrier at 512 (1 arrivals and -2048 bytes missing)");
}

Test(emulator_hopper, is_a_copy_nobody_waits_for_caught)
{
    drawn x(2 * 40 * 128, false, 3);
    uint16_t out[16 * 64];
    expect_caught([&] { return launch_box(x, 40, 0, 0, 0, out, NOBODY_WAITS); }, "ends the block");
}

Test(emulator_hopper, is_an_mbarrier_used_before_others_may_see_it_caught)
{
    drawn x(2 * 40 * 128, false, 3);
    uint16_t out[16 * 64];
    expect_caught([&] { return launch_box(x, 40, 0, 0, 0, out, NOT_INITIALISED); },
                  "which nobody has initialised");
    expect_caught([&] { return launch_box(x, 40, 0, 0, 0, out, NOT_FENCED); },
                  "no fence_barrier_init");
    // __syncwarp is there, and enough for one warp
    cr_expect(fine(launch_box(x, 40, 0, 0, 0, out, NO_BARRIER)));
}

Test(emulator_hopper, is_a_misused_mbarrier_caught)
{
    const auto run = [](mbarrier_fault fault) { return launch(mbarrier_kernel, 1, 64, 64, fault); };
    expect_caught([&] { return run(TWICE); }, "it is in use");
    expect_caught([&] { return run(MISALIGNED); }, "multiple of 8");
    expect_caught([&] { return run(TOO_MANY); }, "which takes 2");
    expect_caught([&] { return run(BAD_PARITY); }, "parity 2");
    expect_caught([&] { return run(UNSEEN); },
                  {"no barrier between", "nobody has initialised", "no fence_barrier_init"});
    cr_expect(fine(run(DROPPED)));
    expect_caught([&] { return run(STILL_EXPECTED); }, "phase 1 of the mbarrier at 8 (1 arrivals");
    expect_caught([&] { return run(ALL_DROPPED); }, "drops the last arrival");
    // five arrivals are two phases and a half: some waited for phase 2, whose parity is 0 again
    expect_caught([&] { return run(NOBODY_COMES); },
                  "phase 2 of the mbarrier at 8 (1 arrivals and 0 bytes missing)");
}

Test(emulator_hopper, is_wgmma_the_matrix_product_in_every_layout_and_type)
{
    for (const int n : {8, 64, 128, 256})
        for (const bool a_shared : {false, true})
            for (const bool b_transposed : {false, true})
                for (const bool bf16 : {false, true})
                    if (!b_transposed || n % 64 == 0)
                        check_product({n, a_shared, b_transposed, bf16});
}

Test(emulator_hopper, are_accumulators_nan_until_waited_for)
{
    drawn b(64 * 64, false, 2);
    const tensor_map map = {b.data(), 1, 64, 64, 64};
    float out[256], two[4];
    cr_assert(
        fine(launch(flight_kernel, 1, 128, 8200, map, static_cast<float *>(out), FLIGHT_RIGHT)));
    for (int t = 0; t < 128; t++) {
        float sum = 0; // column 2 (t % 4), twice
        for (int k = 0; k < 16; k++) sum += 2 * b.values[static_cast<size_t>(t % 4 * 2 * 64 + k)];
        cr_expect(std::isnan(out[2 * t]));
        cr_expect_float_eq(out[2 * t + 1], sum, 1e-5f);
    }
    cr_assert(fine(launch(two_groups_kernel, 1, 128, 8200, map, static_cast<float *>(two))));
    cr_expect(std::isfinite(two[0]) && std::isnan(two[1]));
    cr_expect(two[0] == two[2] && two[2] == two[3]);
}

Test(emulator_hopper, is_what_disturbs_a_product_in_flight_caught)
{
    drawn b(64 * 64, false, 2);
    const tensor_map map = {b.data(), 1, 64, 64, 64};
    float out[256];
    const struct {
        flight_fault fault;
        const char *word;
    } faults[] = {{TOUCHED, "thread 9 has touched the accumulators of a product in flight"},
                  {TOUCHED_BETWEEN, "thread 5 has touched the accumulators of a product in flight"},
                  {OPERAND_CHANGED, "thread 9 has changed an operand of a product in flight"},
                  {NO_FENCE, "needs wgmma_fence"},
                  {NO_FENCE_AFTER_WAIT, "needs wgmma_fence"},
                  {NOT_COMMITTED, "returns without waiting for this product"},
                  {NEVER_WAITED, "returns without waiting for this product"},
                  {COMMITTED_BY_SOME, "have committed"},
                  {OTHER_DESCRIPTOR, "differ in n, a descriptor or a flag"},
                  {PART_OF_ACCUMULATORS, "adds to some of the accumulators"},
                  {NO_SWIZZLE, "128-byte swizzle alone"},
                  {BAD_N, "n = 63"},
                  {BY_SOME, "wait for wgmma"},
                  {OUTSIDE, "shared memory, which has 8200"}};
    for (const auto &f : faults)
        expect_caught(
            [&] {
                return launch(flight_kernel, 1, 128, 8200, map, static_cast<float *>(out), f.fault);
            },
            f.word);
    cr_expect(says(launch(flight_kernel, 1, 96, 8200, map, static_cast<float *>(out), FLIGHT_RIGHT),
                   "less than four warps"));
}

Test(emulator_hopper, does_a_ring_of_copies_and_products_run_in_any_order)
{
    const int tiles = 7;
    drawn b(tiles * 64 * 64, false, 5);
    std::vector<float> out(128 * 32);
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        emulator::current_settings().seed = seed;
        cr_assert(fine(launch_ring(b, tiles, out.data(), RING_RIGHT)));
        for (int t = 0; t < 128; t++)
            for (int i = 0; i < 32; i++) {
                const int column = i / 4 * 8 + t % 4 * 2 + i % 2;
                double sum = 0;
                for (int tile = 0; tile < tiles; tile++)
                    for (int k = 0; k < 64; k++)
                        sum += static_cast<double>(
                            b.values[static_cast<size_t>((tile * 64 + column) * 64 + k)]);
                cr_assert_float_eq(static_cast<double>(out[static_cast<size_t>(t * 32 + i)]), sum,
                                   1e-4);
            }
    }
}

Test(emulator_hopper, is_a_product_before_the_wait_caught)
{
    drawn b(4 * 64 * 64, false, 5);
    std::vector<float> out(128 * 32);
    expect_caught([&] { return launch_ring(b, 4, out.data(), NO_FULL_WAIT); },
                  {"has not waited for", "nobody has written"});
}

Test(emulator_hopper, is_an_overwrite_before_release_caught)
{
    drawn b(4 * 64 * 64, false, 5);
    std::vector<float> out(128 * 32);
    expect_caught([&] { return launch_ring(b, 4, out.data(), NO_EMPTY_WAIT); },
                  {"overwrites what", "arrives once too often", "has not waited for"});
}

Test(emulator_hopper, is_release_before_the_product_is_waited_for_caught)
{
    drawn b(4 * 64 * 64, false, 5);
    std::vector<float> out(128 * 32);
    expect_caught([&] { return launch_ring(b, 4, out.data(), RELEASED_EARLY); }, "still reads");
}

Test(emulator_hopper, is_a_release_too_few_or_too_many_caught)
{
    drawn b(6 * 64 * 64, false, 5);
    std::vector<float> out(128 * 32);
    expect_caught([&] { return launch_ring(b, 6, out.data(), NEVER_RELEASED); },
                  "phase 0 of the mbarrier at 16400 (1 arrivals and 0 bytes missing)");
    expect_caught([&] { return launch_ring(b, 6, out.data(), RELEASED_TWICE); },
                  {"overwrites what", "is stuck", "arrives once too often", "has not waited for"});
}

Test(emulator_hopper, may_ldmatrix_read_a_box_and_only_then_release_it)
{
    drawn b(5 * 64 * 64, false, 5);
    const tensor_map map = {b.data(), 1, 5 * 64, 64, 64};
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        emulator::current_settings().seed = seed;
        cr_assert(fine(launch(ldmatrix_ring_kernel, 1, 160, 16384 + 40, map, 5, false)));
    }
    expect_caught([&] { return launch(ldmatrix_ring_kernel, 1, 160, 16384 + 40, map, 5, true); },
                  "still reads");
}

Test(emulator_hopper, do_named_barriers_order_those_that_meet_there)
{
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        int wrong = 0;
        emulator::current_settings().seed = seed;
        cr_expect(fine(launch(named_kernel, 1, 128, 128, NAMED_RIGHT)));
        cr_expect(fine(launch(halves_kernel, 1, 128, 256, &wrong)));
        cr_expect_eq(wrong, 0);
    }
}

Test(emulator_hopper, is_a_misused_named_barrier_caught)
{
    const auto run = [](named_fault fault) { return launch(named_kernel, 1, 128, 128, fault); };
    for (const named_fault fault : {NO_SYNC, ARRIVES_ONLY})
        expect_caught([&] { return run(fault); }, {"no barrier between", "nobody has written"});
    expect_caught([&] { return run(OTHER_COUNT); }, "at which others are for");
    expect_caught([&] { return run(BARRIER_0); }, "there are 1 to 15");
    expect_caught([&] { return run(A_WARP_SHORT); }, "wait for named barrier 2");
    expect_caught([&] { return run(AGAIN); }, "again before it is complete");
}

Test(emulator_hopper, are_registers_a_warpgroup_cannot_have_refused)
{
    const auto run = [](int producer, int consumer, bool again, bool some) {
        return launch(registers_kernel, 1, 384, 0, producer, consumer, again, some);
    };
    cr_expect(fine(run(24, 240, false, false)));
    expect_caught([&] { return run(20, 240, false, false); }, "sets 20 registers");
    expect_caught([&] { return run(24, 256, false, false); }, "536 for each of 128 threads");
    expect_caught([&] { return run(32, 240, false, false); }, "launched with 504"); // 3 x 168
    expect_caught([&] { return run(24, 240, true, false); }, "decreases its registers again");
    expect_caught([&] { return run(24, 240, false, true); }, "wait for set_registers");
}

// ---- two blocks that run together ---------------------------------------------------------------

Test(emulator_hopper, does_a_box_for_both_arrive_in_both)
{
    drawn x(32 * 64, false, 1);
    std::vector<uint16_t> out(2 * 32 * 64);
    for (uint64_t seed = 1; seed < 20; seed++) {
        emulator::current_settings().seed = seed;
        cr_assert(fine(launch_pair(x, out.data(), PAIR_RIGHT)));
        for (size_t i = 0; i < out.size(); i++) cr_assert_eq(out[i], x.data()[i % (32 * 64)]);
    }
}

Test(emulator_hopper, are_mistakes_between_two_blocks_caught)
{
    drawn x(32 * 64, false, 1);
    std::vector<uint16_t> out(2 * 32 * 64);
    const auto run = [&](pair_fault fault) { return launch_pair(x, out.data(), fault); };
    expect_caught([&] { return run(NO_CLUSTER_BARRIER); },
                  {"no barrier between", "nobody has initialised", "no fence_barrier_init"});
    expect_caught([&] { return run(OTHERS_BYTES); }, "in the other block's shared memory");
    expect_caught([&] { return run(WAITS_AT_THE_OTHER); }, "in the other block's shared memory");
    expect_caught([&] { return run(ENDS_BEFORE_COPIES); },
                  {"to a block that has ended", "on its way", "nobody has waited for the copy"});
    expect_caught([&] { return run(ENDS_BEFORE_ARRIVALS); }, "of a block that has ended");
    cr_expect_eq(launch_pair(x, out.data(), PAIR_RIGHT, 3), "invalid configuration argument");
}

// ---- blocks that stay, and launches that begin early --------------------------------------------

Test(emulator_hopper, do_rounds_bring_every_tile_once_and_share_the_work_evenly)
{
    for (int takers : {1, 3, 4})
        for (int units : {1, 2, 5, 8, 33})
            for (int planes : {1, 2, 7, 16, 40})
                for (int consumers : {1, 2, 3})
                    for (int turn = 0; turn < 4; turn++) {
                        const bool last_first = turn % 2;
                        const int blocks = turn / 2 + 1;
                        std::vector<int> visits(static_cast<size_t>(units * planes)), work(8);
                        int longer = 0, all = 0, most = 0;
                        cr_assert(fine(launch(rounds_kernel, takers * blocks, 32, 0, units, planes,
                                              consumers, blocks, last_first, visits.data(),
                                              work.data(), &longer)));
                        for (int x : visits)
                            cr_assert_eq(x, 1, "%d units, %d planes", units, planes);
                        cr_expect_eq(longer, 0);
                        for (int x : work) all += x, most = x > most ? x : most;
                        // Nobody has more than its share by more than the longest tile; but of nine
                        // tiles a plane the ninth is always of a taker at one of the ends.
                        const int rows = blocks * consumers, tiles = (units - 1) / rows + 1;
                        const int share = all / takers, longest = rows * (last_first ? tiles : 1);
                        const int more = tiles == 9 ? std::max(longest, share / 40) : longest;
                        cr_expect_leq(
                            most, share + more,
                            "%d takers of %d, %d units, %d planes, %d consumers: %d of %d", takers,
                            blocks, units, planes, consumers, most, all);
                    }
}

// 16 planes of 8192 rows are 688 tiles of 192: 6 rounds of 132 blocks, the last almost empty. Cut,
// it has 80 tiles of 64 rows; at 16384 rows 80 of 128.
Test(emulator_hopper, is_the_last_round_cut_into_as_small_tiles_as_fit)
{
    const struct {
        int units, planes, rounds, last; // units of the last round's tiles
    } cases[] = {{128, 16, 6, 1}, {256, 16, 11, 2}, {64, 64, 11, 2}};
    for (const auto &c : cases) {
        std::vector<int> visits(static_cast<size_t>(c.units * c.planes)), work(132);
        int longer = 0, most = 0;
        cr_assert(fine(launch(rounds_kernel, 132, 32, 0, c.units, c.planes, 3, 1, false,
                              visits.data(), work.data(), &longer)));
        for (int x : work) most = x > most ? x : most;
        cr_expect_eq(most, 3 * (c.rounds - 1) + c.last, "%d rows: %d", 64 * c.units, most);
    }
}

Test(emulator_hopper, is_a_copy_before_the_launches_before_have_ended_caught)
{
    drawn x(16 * 64, false, 1);
    const tensor_map map = {x.data(), 1, 16, 64, 16};
    const auto launched = [&](bool waits, bool early) -> std::string {
        tensor_map its_map = map;
        void *arguments[] = {&its_map, &waits};
        const cudaError_t error = emulator::launch_kernel(early_kernel, dim3(1), dim3(32),
                                                          arguments, 4096, nullptr, early);
        return error == cudaSuccess ? "" : cudaGetErrorString(error);
    };
    expect_caught([&] { return launched(false, true); },
                  "has not waited for the launches before this");
    cr_expect(fine(launched(true, true)));
    cr_expect(fine(launched(false, false)));
}
