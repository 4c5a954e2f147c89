// The emulator: each operation against its definition in the PTX manual, wrong kernels that must be
// caught, and a fused attention kernel against float64.
#include <criterion/criterion.h>

#include <cmath>
#include <vector>

#include "async.h"
#include "emulated.h"
#include "fragment.h"
#include "half.h"
#include "oracle.h"
#include "random.h"
#include "stages.h"

extern "C" attention_function attention_forward_stage3_turing_emulated;

namespace
{

// ---- operations against their definitions -----------------------------------------------------

void shuffle_kernel(float *out)
{
    for (int mask = 1; mask < 32; mask *= 2) {
        const float x = shuffle_xor(static_cast<float>(threadIdx.x), mask, site());
        out[blockIdx.x * 64 * 5 + threadIdx.x * 5 +
            static_cast<unsigned>(__builtin_ctz(static_cast<unsigned>(mask)))] = x;
    }
}

// Shared memory as a matrix of 16 rows of 24 halves, element (r, c) holding 100 r + c.
constexpr int stride = 24;

void fill_matrix()
{
    for (unsigned i = threadIdx.x; i < 16 * stride; i += blockDim.x) {
        const uint16_t bits = fp16_from_float(static_cast<float>(i / stride * 100 + i % stride));
        emulator::shared_write(2 * i, &bits, 2, site());
    }
    barrier();
}

template <bool transposed> void ldmatrix_kernel(uint32_t *out)
{
    fill_matrix();
    uint32_t x[4];
    const unsigned lane = threadIdx.x; // matrices: top left, bottom left, top right, bottom right
    ldmatrix_x4<transposed>(x, (lane % 16 * stride + lane / 16 * 8) * 2, site());
    for (unsigned i = 0; i < 4; i++) out[lane * 4 + i] = x[i];
}

template <class T, int depth> void mma_kernel(const uint16_t *a, const uint16_t *b, float *c)
{
    // a [16, depth] by rows, b [depth, 8] by columns: the fragments as the manual draws them
    const unsigned lane = threadIdx.x, group = lane / 4, in_group = lane % 4;
    uint32_t x[4], y[2];
    float z[4];
    auto pair = [](const uint16_t *p) { return p[0] | static_cast<uint32_t>(p[1]) << 16; };
    for (unsigned r = 0; r < depth / 4; r++)
        x[r] = pair(a + (group + r % 2 * 8) * depth + in_group * 2 + r / 2 * 8);
    for (unsigned r = 0; r < depth / 8; r++) y[r] = pair(b + group * depth + in_group * 2 + r * 8);
    for (unsigned e = 0; e < 4; e++) z[e] = c[(group + e / 2 * 8) * 8 + in_group * 2 + e % 2];
    if (depth == 8)
        emulator::mma_m16n8k8_fp16(z, x, y, site());
    else
        mma(z, x, y[0], y[1], T(), site());
    for (unsigned e = 0; e < 4; e++) c[(group + e / 2 * 8) * 8 + in_group * 2 + e % 2] = z[e];
}

template <class T, int depth>
void check_mma(uint16_t (*to_bits)(float), float (*to_float)(uint16_t))
{
    random_stream stream;
    float drawn[16 * depth + 8 * depth + 16 * 8];
    uint16_t a[16 * depth], b[8 * depth];
    float c[16 * 8], before[16 * 8];
    random_seed(&stream, 1);
    random_normal(&stream, drawn, sizeof drawn / sizeof *drawn);
    for (int i = 0; i < 16 * depth; i++) a[i] = to_bits(drawn[i]);
    for (int i = 0; i < 8 * depth; i++) b[i] = to_bits(drawn[16 * depth + i]);
    for (int i = 0; i < 16 * 8; i++) c[i] = before[i] = drawn[24 * depth + i];
    cr_assert(fine(launch(mma_kernel<T, depth>, 1, 32, 0, static_cast<const uint16_t *>(a),
                          static_cast<const uint16_t *>(b), static_cast<float *>(c))));
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            double sum = static_cast<double>(before[i * 8 + j]);
            for (int t = 0; t < depth; t++)
                sum += static_cast<double>(to_float(a[i * depth + t])) *
                       static_cast<double>(to_float(b[j * depth + t]));
            cr_assert_float_eq(static_cast<double>(c[i * 8 + j]), sum, 4e-6);
        }
}

void barrier_kernel(int *out)
{
    // Each thread writes, all wait, each reads its neighbour's: sixteen times over.
    for (unsigned round = 0; round < 16; round++) {
        const uint16_t value = static_cast<uint16_t>(threadIdx.x + round);
        emulator::shared_write(2 * threadIdx.x, &value, 2, site());
        barrier();
        uint16_t neighbour;
        emulator::shared_read(&neighbour, (threadIdx.x + 1) % blockDim.x * 2, 2, site());
        barrier();
        if (neighbour != (threadIdx.x + 1) % blockDim.x + round) out[0] = 1;
    }
}

// ---- wrong kernels ----------------------------------------------------------------------------

void missing_barrier_kernel(int)
{
    const uint16_t value = 1;
    uint16_t other;
    emulator::shared_write(2 * threadIdx.x, &value, 2, site());
    emulator::shared_read(&other, (threadIdx.x + 1) % blockDim.x * 2, 2, site());
}

void overwrite_before_read_kernel(int)
{
    const uint16_t value = 1;
    uint16_t other;
    emulator::shared_write(2 * threadIdx.x, &value, 2, site());
    barrier();
    emulator::shared_read(&other, (threadIdx.x + 1) % blockDim.x * 2, 2, site());
    emulator::shared_write(2 * threadIdx.x, &value, 2, site()); // somebody may still be reading
}

void barrier_in_a_branch_kernel(int)
{
    if (threadIdx.x < 40) barrier();
}

void two_barriers_kernel(int)
{
    if (threadIdx.x < 32) barrier();
    if (threadIdx.x >= 32) barrier();
}

void unwritten_kernel(int)
{
    uint16_t value;
    emulator::shared_read(&value, 2 * threadIdx.x, 2, site());
}

void outside_kernel(int)
{
    const uint16_t value = 1;
    emulator::shared_write(2 * (threadIdx.x + 1), &value, 2, site());
}

void shuffle_in_a_branch_kernel(int)
{
    if (threadIdx.x % 32 != 7) shuffle_xor(1.0f, 1, site());
}

void unaligned_kernel(const uint16_t *from)
{
    global_load_16(from + 1 + threadIdx.x * 8, site());
}

void store_kernel(uint16_t *to, int off)
{
    if (threadIdx.x == 0) global_store_16(to + off, uint4{7, 7, 7, 7}, site());
}

// A warp writes x[row][col] = 128 row + col.
void store_tile_kernel(uint16_t *to, int64_t valid)
{
    accumulator<32, 128> x = {};
    each_element(x, [](float, int t, int h, int c) {
        return static_cast<float>(128 * fragment_row(t, h) + c);
    });
    store(reinterpret_cast<fp16 *>(to), x, valid);
}

// 32 threads copy 16 bytes each, and every thread looks at what its neighbour's copy brought.
enum copy_fault { NO_FAULT, NO_WAIT, NO_BARRIER, WRITTEN_OVER, NEVER_WAITED, UNALIGNED };

void copy_kernel(const uint16_t *from, uint16_t *out, copy_fault fault)
{
    const unsigned id = threadIdx.x;
    copy_async_16(16 * id, from + 8 * id + (fault == UNALIGNED), id % 2 == 0, site());
    if (fault == WRITTEN_OVER) {
        const uint16_t value = 1;
        emulator::shared_write(16 * id + 2, &value, 2, site());
    }
    if (fault == NEVER_WAITED) return;
    if (fault != NO_WAIT) wait_for_copies();
    if (fault != NO_BARRIER) barrier();
    const unsigned other = fault == NO_WAIT ? id : (id + 1) % 32;
    for (unsigned i = 0; i < 8; i++)
        emulator::shared_read(out + 8 * other + i, 16 * other + 2 * i, 2, site());
}

} // namespace

Test(emulator, does_shuffle_xor_exchange_lanes_within_each_warp)
{
    std::vector<float> out(2 * 64 * 5);
    cr_assert(fine(launch(shuffle_kernel, 2, 64, 0, out.data())));
    for (int block = 0; block < 2; block++)
        for (int thread = 0; thread < 64; thread++)
            for (int bit = 0; bit < 5; bit++)
                cr_expect_eq(out[static_cast<size_t>((block * 64 + thread) * 5 + bit)],
                             static_cast<float>(thread ^ (1 << bit)));
}

Test(emulator, does_ldmatrix_hand_out_rows_or_columns_as_the_manual_says)
{
    uint32_t plain[32 * 4], transposed[32 * 4];
    cr_assert(fine(
        launch(ldmatrix_kernel<false>, 1, 32, 16 * stride * 2, static_cast<uint32_t *>(plain))));
    cr_assert(fine(launch(ldmatrix_kernel<true>, 1, 32, 16 * stride * 2,
                          static_cast<uint32_t *>(transposed))));
    for (int lane = 0; lane < 32; lane++)
        for (int matrix = 0; matrix < 4; matrix++)
            for (int half = 0; half < 2; half++) {
                const int across = lane / 4, along = lane % 4 * 2 + half, top = matrix % 2 * 8,
                          left = matrix / 2 * 8;
                cr_expect_eq(
                    fp16_to_float(static_cast<uint16_t>(plain[lane * 4 + matrix] >> 16 * half)),
                    static_cast<float>((top + across) * 100 + left + along));
                cr_expect_eq(fp16_to_float(
                                 static_cast<uint16_t>(transposed[lane * 4 + matrix] >> 16 * half)),
                             static_cast<float>((top + along) * 100 + left + across));
            }
}

Test(emulator, is_mma_the_matrix_product_in_both_shapes_and_types)
{
    check_mma<fp16, 16>(fp16_from_float, fp16_to_float);
    check_mma<bf16, 16>(bf16_from_float, bf16_to_float);
    check_mma<fp16, 8>(fp16_from_float, fp16_to_float);
}

Test(emulator, does_a_barrier_order_what_is_before_and_after_it)
{
    for (uint64_t seed = 1; seed < 20; seed++) {
        int wrong = 0;
        emulator::current_settings().seed = seed;
        cr_expect(fine(launch(barrier_kernel, 3, 128, 256, &wrong)));
        cr_expect_eq(wrong, 0);
    }
}

// Every message names the thread and the line.
Test(emulator, is_a_missing_barrier_caught_whatever_the_order)
{
    for (uint64_t seed = 1; seed < 20; seed++) {
        emulator::current_settings().seed = seed;
        const std::string race = launch(missing_barrier_kernel, 1, 64, 128, 0),
                          late = launch(overwrite_before_read_kernel, 1, 64, 128, 0);
        cr_expect(says(race, "no barrier between") || says(race, "nobody has written"), "%s",
                  race.c_str());
        cr_expect(says(late, "no barrier between") && says(late, "thread") &&
                      says(late, "test_emulator.cpp"),
                  "%s", late.c_str());
    }
}

Test(emulator, is_a_barrier_that_not_all_reach_caught)
{
    const std::string branch = launch(barrier_in_a_branch_kernel, 1, 64, 0, 0),
                      two = launch(two_barriers_kernel, 1, 64, 0, 0);
    cr_expect(says(branch, "barrier") && says(branch, "thread"), "%s", branch.c_str());
    cr_expect(says(two, "is at a barrier, but thread"), "%s", two.c_str());
}

Test(emulator, is_a_read_of_unwritten_shared_memory_caught)
{
    const std::string message = launch(unwritten_kernel, 1, 32, 64, 0);
    cr_expect(says(message, "nobody has written") && says(message, "test_emulator.cpp"), "%s",
              message.c_str());
}

Test(emulator, is_an_access_outside_shared_memory_caught)
{
    const std::string message = launch(outside_kernel, 1, 32, 64, 0);
    cr_expect(says(message, "thread 31") && says(message, "shared memory, which has 64"), "%s",
              message.c_str());
}

Test(emulator, is_a_warp_operation_that_not_all_lanes_reach_caught)
{
    const std::string message = launch(shuffle_in_a_branch_kernel, 1, 32, 0, 0);
    cr_expect(says(message, "thread 7") || says(message, "lane 7"), "%s", message.c_str());
}

Test(emulator, is_an_unaligned_16_byte_load_caught)
{
    alignas(16) uint16_t memory[32 * 8 + 8] = {};
    cr_expect(says(launch(unaligned_kernel, 1, 32, 0, static_cast<const uint16_t *>(memory)),
                   "multiple of 16"));
}

Test(emulator, is_an_unaligned_store_caught)
{
    alignas(16) uint16_t memory[16] = {};
    cr_expect(says(launch(store_kernel, 1, 32, 0, static_cast<uint16_t *>(memory), 1),
                   "stores 16 bytes at an address that is no multiple"));
    cr_expect(fine(launch(store_kernel, 1, 32, 0, static_cast<uint16_t *>(memory), 0)));
    cr_expect(memory[0] == 7 && memory[6] == 7 && memory[8] == 0);
}

Test(emulator, does_store_write_every_element_of_the_valid_rows_and_no_other)
{
    for (int64_t valid : {0, 1, 13, 31, 32, 100}) {
        alignas(16) uint16_t memory[32 * 128];
        memset(memory, 0xff, sizeof memory);
        cr_assert(
            fine(launch(store_tile_kernel, 1, 32, 0, static_cast<uint16_t *>(memory), valid)));
        for (int i = 0; i < 32 * 128; i++)
            cr_assert_eq(memory[i],
                         i / 128 < valid ? fp16_from_float(static_cast<float>(i)) : 0xffff,
                         "row %d, column %d", i / 128, i % 128);
    }
}

Test(emulator, do_copies_arrive_and_zeros_where_nothing_is_valid)
{
    alignas(16) uint16_t from[32 * 8];
    uint16_t out[32 * 8];
    for (unsigned i = 0; i < 32 * 8; i++) from[i] = static_cast<uint16_t>(i + 1);
    for (uint64_t seed = 1; seed < 10; seed++) {
        emulator::current_settings().seed = seed;
        cr_assert(fine(launch(copy_kernel, 1, 32, 512, static_cast<const uint16_t *>(from),
                              static_cast<uint16_t *>(out), NO_FAULT)));
        for (unsigned i = 0; i < 32 * 8; i++) cr_expect_eq(out[i], i / 8 % 2 ? 0 : i + 1);
    }
}

Test(emulator, is_a_copy_not_waited_for_caught)
{
    const struct {
        copy_fault fault;
        const char *word;
    } faults[] = {{NO_WAIT, "has not waited for it"},
                  {NO_BARRIER, "no barrier between"},
                  {WRITTEN_OVER, "is on its way"},
                  {NEVER_WAITED, "returns without waiting"},
                  {UNALIGNED, "multiple of 16"}};
    alignas(16) uint16_t from[32 * 8 + 8] = {};
    uint16_t out[32 * 8];
    for (const auto &f : faults)
        for (uint64_t seed = 1; seed < 10; seed++) {
            emulator::current_settings().seed = seed;
            const std::string message =
                launch(copy_kernel, 1, 32, 512, static_cast<const uint16_t *>(from),
                       static_cast<uint16_t *>(out), f.fault);
            // Without a barrier the neighbour may be early or late.
            const bool other = f.fault == NO_BARRIER && (says(message, "is on its way") ||
                                                         says(message, "nobody has written"));
            cr_expect((says(message, f.word) || other) && says(message, "thread"), "%d: %s",
                      f.fault, message.c_str());
        }
}

Test(emulator, is_a_launch_the_hardware_would_refuse_refused)
{
    cr_expect_not(fine(launch(unwritten_kernel, 1, 33, 64, 0)));
    cr_expect_not(fine(launch(unwritten_kernel, 1, 2048, 64, 0)));
    cr_expect_not(fine(launch(unwritten_kernel, 1, 32, 300 << 10, 0))); // [20]
    int zero = 0;
    void *arguments[] = {&zero};
    cr_expect_eq(cudaLaunchKernel(unwritten_kernel, dim3(1), dim3(32), arguments, 100 << 10),
                 cudaErrorInvalidConfiguration); // not opted in
}

// ---- the kernel of stage 3 --------------------------------------------------------------------

namespace
{

// n queries of two heads, drawn; what the kernel wrote.
std::vector<float> attend(attention_function *forward, int64_t d, attention_dtype dtype,
                          int64_t block_k = 64, int64_t block_q = 128, int64_t n = 200,
                          bool causal = true)
{
    attention_args args = attention_args_default(1, 2, n, d);
    args.dtype = dtype;
    args.causal = causal;
    args.block_q = block_q;
    args.block_k = attention_block_k(block_k, d);
    args.threads = emulator::current_settings().threads;
    std::vector<float> q(static_cast<size_t>(2 * n * d)), k(q), v(q), o(q),
        lse(static_cast<size_t>(2 * n));
    random_stream stream;
    random_seed(&stream, 7);
    for (std::vector<float> *x : {&q, &k, &v}) {
        random_normal(&stream, x->data(), static_cast<int64_t>(x->size()));
        for (float &e : *x) e = dtype_round(e, dtype);
    }
    const attention_status status =
        forward(q.data(), k.data(), v.data(), o.data(), lse.data(), &args);
    if (status != ATTENTION_OK) return {};
    oracle_report r;
    cr_assert_eq(oracle_check(&r, q.data(), k.data(), v.data(), o.data(), lse.data(), &args),
                 ATTENTION_OK);
    cr_expect_eq(r.failed, 0);
    return o;
}

} // namespace

// The order of the threads and the number of cores change no bit.
Test(emulated_attention, are_the_bytes_the_same_in_any_order)
{
    std::vector<float> first;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        emulator::current_settings().seed = seed;
        emulator::current_settings().threads = static_cast<int>(seed % 3) + 1;
        const std::vector<float> o = attend(attention_forward_stage3_emulated, 64, DTYPE_FP16);
        cr_assert_not(o.empty(), "%s", status_message());
        if (first.empty()) first = o;
        cr_expect(first == o);
    }
}

Test(emulated_attention, are_there_no_bank_conflicts)
{
    const struct {
        attention_function *forward;
        int64_t block_k;
    } kernels[] = {{attention_forward_stage3_emulated, 64},
                   {attention_forward_stage4_emulated, 64},
                   {attention_forward_stage5_emulated, STAGE5_BLOCK_K}};
    for (const auto &kernel : kernels)
        for (int64_t d : {64, 128}) {
            cr_assert_not(attend(kernel.forward, d, DTYPE_FP16, kernel.block_k).empty(), "%s",
                          status_message());
            cr_expect_gt(emulator::last_launch().shared_accesses, 1000);
            cr_expect_eq(emulator::last_launch().bank_conflicts, 0);
        }
}

// A card may keep any warp waiting. Of three consumers under causality the first passes on a tile
// of every ring; else the third leaves before the last round.
Test(emulated_attention, may_any_warp_be_late)
{
    for (bool causal : {true, false})
        for (int warp = 0; warp < 16; warp += causal ? 1 : 4) {
            emulator::current_settings().late_warp = warp;
            cr_expect_not(
                attend(attention_forward_stage7_emulated, 64, DTYPE_FP16, 128, 64, 576, causal)
                    .empty(),
                "warp %d: %s", warp, status_message());
        }
}

// What failed before a launch is not the launch's failure.
Test(emulated_attention, is_an_older_error_left_where_it_belongs)
{
    void *none = nullptr;
    cr_assert_eq(cudaMalloc(&none, SIZE_MAX / 4), cudaErrorMemoryAllocation);
    cr_expect_not(attend(attention_forward_stage3_emulated, 64, DTYPE_FP16).empty(), "%s",
                  status_message());
}

// Turing has m16n8k8 alone, and no bf16.
Test(emulated_attention, does_the_turing_path_agree_and_refuse_bf16)
{
    for (int64_t d : {64, 128}) {
        const std::vector<float> turing =
            attend(attention_forward_stage3_turing_emulated, d, DTYPE_FP16);
        cr_assert_not(turing.empty(), "%s", status_message());
        const std::vector<float> ampere = attend(attention_forward_stage3_emulated, d, DTYPE_FP16);
        for (size_t i = 0; i < turing.size(); i++)
            cr_expect_float_eq(turing[i], ampere[i], 0x1p-9f);
        cr_expect(attend(attention_forward_stage3_turing_emulated, d, DTYPE_BF16).empty());
        cr_expect(says(status_message(), "8.0"), "%s", status_message());
    }
}

// [20] More shared memory than the card allows is refused in a sentence, never zeros.
Test(emulated_attention, is_a_card_with_too_little_shared_memory_refused)
{
    emulator::current_settings().shared_bytes = 32 << 10;
    cr_expect(attend(attention_forward_stage3_emulated, 128, DTYPE_FP16).empty());
    cr_expect(says(status_message(), "34816") && says(status_message(), "32768"), "%s",
              status_message());
}
