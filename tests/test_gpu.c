// The CUDA stages on a GPU. REQUIRE_GPU=1 turns a skip for want of one into a failure.
#define ON_GPU
#include "cuda_support.h"

#define SUITE            gpu_stage3
#define STAGE            attention_forward_stage3
#define TRACED           attention_forward_stage3_traced
#define PREVIOUS         attention_forward_stage2
#define BLOCK_Q          128
#define BLOCK_K          64
#define PREVIOUS_BLOCK_Q 128
#define PREVIOUS_BLOCK_K 64
#define SKIPS            false
#include "cuda_stage.h"

#undef SUITE
#undef STAGE
#undef TRACED
#undef PREVIOUS
#undef SKIPS
#define SUITE    gpu_stage4
#define STAGE    attention_forward_stage4
#define TRACED   attention_forward_stage4_traced
#define PREVIOUS attention_forward_stage3
#define SKIPS    true
#include "cuda_stage.h"

#undef SUITE
#undef STAGE
#undef TRACED
#undef PREVIOUS
#undef BLOCK_K
#define BLOCK_K  STAGE5_BLOCK_K
#define SUITE    gpu_stage5
#define STAGE    attention_forward_stage5
#define TRACED   attention_forward_stage5_traced
#define PREVIOUS attention_forward_stage4
#include "cuda_stage.h"

#undef SUITE
#undef STAGE
#undef TRACED
#undef PREVIOUS
#undef BLOCK_K
#undef PREVIOUS_BLOCK_K
#undef ONLY_ON
#undef BLOCK_Q
#undef BLOCK_ROWS
#define PREVIOUS_BLOCK_K STAGE5_BLOCK_K
#define ONLY_ON          90
#define SUITE            gpu_stage6
#define STAGE            attention_forward_stage6
#define TRACED           attention_forward_stage6_traced
#define PREVIOUS         attention_forward_stage5
#define BLOCK_Q          64
#define BLOCK_K          128
#define BLOCK_ROWS       128
#include "cuda_stage.h"

#undef SUITE
#undef STAGE
#undef TRACED
#undef PREVIOUS
#undef PREVIOUS_BLOCK_Q
#undef PREVIOUS_BLOCK_K
#undef BLOCK_ROWS
#undef BLOCK_K
#define BLOCK_K          128
#define SUITE            gpu_stage7
#define STAGE            attention_forward_stage7
#define TRACED           attention_forward_stage7_traced
#define PREVIOUS         attention_forward_stage6
#define PREVIOUS_BLOCK_Q 64
#define PREVIOUS_BLOCK_K 128
#include "cuda_stage.h"

#undef SUITE
#undef STAGE
#undef TRACED
#undef PREVIOUS
#undef PREVIOUS_BLOCK_Q
#undef PREVIOUS_BLOCK_K
#undef SKIPS
#undef BLOCK_Q
#undef BLOCK_K
#undef ONLY_ON
#define ONLY_ON          0
#define PREVIOUS_BLOCK_Q 128
#define PREVIOUS_BLOCK_K 64
#define SUITE            gpu_stage3_scalar
#define STAGE            attention_forward_stage3_scalar
#define TRACED           attention_forward_stage3_scalar_traced
#define PREVIOUS         attention_forward_stage2
#define SKIPS            false
#define BLOCK_Q          64
#define BLOCK_K          32
#include "cuda_stage.h"

// The fastest kernel of each stage, on the cards that have what it needs.
static const struct {
    attention_function *forward;
    int block_q, block_k, only_on;
} on_gpu[] = {
    {attention_forward_stage3, 128, 64, 0},
    {attention_forward_stage4, 128, 64, 0},
    {attention_forward_stage5, 128, STAGE5_BLOCK_K, 0},
    {attention_forward_stage6, 64, 128, 90},
    {attention_forward_stage7, 64, 128, 90},
};
enum { ON_GPU_COUNT = sizeof on_gpu / sizeof *on_gpu };

// Whether kernel s has what it needs; the others are tested without it.
static bool runs_here(int s)
{
    gpu_device device;
    return gpu_device_open(&device) == ATTENTION_OK &&
           (!on_gpu[s].only_on || on_gpu[s].only_on == device.compute_capability);
}

// R14's six long cases, and the mean error up to N = 4096.
Test(gpu, are_the_long_cases_right, .timeout = 300)
{
    if (!device_ready(ONLY_ON)) return;
    for (int s = 0; s < ON_GPU_COUNT; s++)
        for (int turn = 0; turn < 8 && runs_here(s); turn++)
            for (int64_t n = 2048; n <= 8192; n *= 2) {
                problem p = cuda_turn(turn, 1, 4, n, on_gpu[s].block_q, on_gpu[s].block_k);
                oracle_report r;
                problem_draw(&p, 0, 1);
                problem_run(&p, on_gpu[s].forward);
                problem_judge(&p);
                cr_assert_eq(oracle_check(&r, p.q, p.k, p.v, p.o, p.lse, &p.args), ATTENTION_OK);
                cr_expect_leq(r.max_abs, p.args.dtype == DTYPE_FP16 ? 0x1p-9 : 0x1p-6);
                if (n <= 4096)
                    cr_expect_leq(r.mean_abs, 1.6 * r.rounding_mean_abs, "N=%" PRId64 " turn %d", n,
                                  turn);
                problem_free(&p);
            }
}

// More heads than a grid's y or z could count.
Test(gpu, are_70000_heads_no_limit)
{
    if (!device_ready(ONLY_ON)) return;
    for (int s = 0; s < ON_GPU_COUNT && runs_here(s); s++) {
        problem p = cuda_turn(4, 7, 10000, 2, on_gpu[s].block_q, on_gpu[s].block_k);
        problem_draw(&p, 3, 1);
        problem_run(&p, on_gpu[s].forward);
        problem_judge(&p);
        problem_free(&p);
    }
}

// [17] Positions beyond 16 bits: the last key dominates, and the last row alone sees it.
Test(gpu, do_positions_beyond_16_bits_count, .timeout = 300)
{
    if (!device_ready(ONLY_ON)) return;
    const int64_t lengths[] = {32768, 32769, 65537};
    for (int i = 0; i < 3 * ON_GPU_COUNT; i++) {
        const int64_t n = lengths[i % 3];
        if (!runs_here(i / 3)) break;
        problem p = cuda_turn(4, 1, 1, n, on_gpu[i / 3].block_q, on_gpu[i / 3].block_k);
        p.args.scale = 1;
        fill(p.q, p.count, 0);
        fill(p.k, p.count, 0);
        fill(p.v, p.count, 1);
        set_column(p.q, n, 64, 0, 1);
        p.k[(n - 1) * 64] = 200;
        fill(p.v + (n - 1) * 64, 64, 5);
        problem_run(&p, on_gpu[i / 3].forward);
        for (int64_t r = 0; r < n - 1; r++) cr_assert_eq(p.o[r * 64 + 7], 1, "row %" PRId64, r);
        cr_expect_eq(p.o[(n - 1) * 64 + 7], 5);
        problem_free(&p);
    }
}

// More than 2^31 elements a tensor: the last head is what it is alone. The rest stays zero, in
// pages that are never touched.
static void expect_the_last_row_right(int s)
{
    enum { N = 128, D = 64, HEADS = 262144 + 3 };
    problem last = cuda_turn(4, 1, 1, N, on_gpu[s].block_q, on_gpu[s].block_k);
    problem_draw(&last, 5, 1);
    problem_run(&last, on_gpu[s].forward);
    const int64_t head = N * D, count = head * HEADS;
    cr_assert_gt(count, INT64_C(1) << 31);
    float *x[4];
    const float *const from[] = {last.q, last.k, last.v};
    for (int t = 0; t < 4; t++) {
        x[t] = mmap(NULL, (size_t)count * sizeof(float), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        cr_assert_neq((void *)x[t], MAP_FAILED);
        if (t < 3) memcpy(x[t] + count - head, from[t], (size_t)head * sizeof(float));
    }
    attention_args args = last.args;
    args.heads = HEADS;
    const attention_status status = on_gpu[s].forward(x[0], x[1], x[2], x[3], NULL, &args);
    cr_assert_eq(status, ATTENTION_OK, "%s", status_message());
    cr_expect_arr_eq(x[3] + count - head, last.o, (size_t)head * sizeof(float));
    for (int64_t i = count - 3 * head; i < count - head; i++) cr_assert_eq(x[3][i], 0);
    for (int t = 0; t < 4; t++) munmap(x[t], (size_t)count * sizeof(float));
    problem_free(&last);
}

Test(gpu, are_tensors_beyond_31_bits_right_to_the_last_row, .timeout = 600)
{
    if (device_ready(0)) expect_the_last_row_right(2);
}

Test(gpu, are_tensor_maps_beyond_31_bits_right_to_the_last_row, .timeout = 600)
{
    if (device_ready(90)) expect_the_last_row_right(4);
}
