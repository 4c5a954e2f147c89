// cuda_support.h: what the tests of the CUDA stages share. A program that includes cuda_stage.h
// defines, each time,
//   SUITE             the Criterion suite's name     STAGE, TRACED  its two builds
//   PREVIOUS          the stage before               BLOCK_Q, BLOCK_K  its tile
//   PREVIOUS_BLOCK_Q  and _K                         the tile of the stage before
//   BLOCK_ROWS        the queries of a block, if it computes several tiles of them side by side
//   ROWS_COMPUTED     what a plane's queries are filled up to a multiple of, if not BLOCK_ROWS
//   ONLY_ON           if on a GPU, the one compute capability it runs on
#ifndef CUDA_SUPPORT_H
#define CUDA_SUPPORT_H

#include "golden.h"
#include "gpu_device.h"
#include "support.h"

static const int64_t cuda_lengths[] = {1, 2, 63, 64, 65, 127, 128, 129, 191, 257, 513, 1025};
enum { CUDA_LENGTHS = sizeof cuda_lengths / sizeof *cuda_lengths };

// Whether the test can run: always in the emulator. Without a GPU a test for one is skipped, or
// fails where REQUIRE_GPU=1. CUDA is touched here first, in the test's own process.
#if defined(__SANITIZE_ADDRESS__)
enum { RUNS = 3, LONGEST = 130, STEP = 4, TURN = 3 }; // sanitizers slow the emulator down
#elif !defined(ON_GPU)
enum { RUNS = 8, LONGEST = 1025, STEP = 1, TURN = 1 };
#else
enum { RUNS = 20, LONGEST = 1025, STEP = 1, TURN = 1 };
#endif

#define ONLY_ON 0
#ifdef ON_GPU
static inline bool device_ready(int only_on)
{
    gpu_device device;
    attention_status status = gpu_device_open(&device);
    if (status == ATTENTION_OK && only_on && only_on != device.compute_capability)
        status = status_fail(ATTENTION_NO_DEVICE, "this card's compute capability is %d, not %d",
                             device.compute_capability, only_on);
    if (status == ATTENTION_OK) return true;
    const char *required = getenv("REQUIRE_GPU");
    if (required && strcmp(required, "1") == 0)
        cr_assert(false, "REQUIRE_GPU=1, and %s", status_message());
    cr_skip_test("%s", status_message());
    return false;
}
#else
static inline bool device_ready(int only_on)
{
    (void)only_on;
    return true;
}
#endif

// Turn 0 to 7: fp16 and bf16, head_dim 64 and 128, causal off and on; block_k 0 is head_dim.
static inline problem cuda_turn(int turn, int64_t batch, int64_t heads, int64_t n, int64_t block_q,
                                int64_t block_k)
{
    problem p = problem_new(batch, heads, n, turn & 2 ? 128 : 64);
    p.args.dtype = turn & 1 ? DTYPE_BF16 : DTYPE_FP16;
    p.args.causal = turn & 4;
    p.args.block_q = block_q;
    p.args.block_k = attention_block_k(block_k, p.args.head_dim);
    return p;
}

// Every element by the design's rule, and a mean error of at most 1.6 times rounding's.
static inline void cuda_judge(const problem *p)
{
    oracle_report r;
    problem_judge(p);
    cr_assert_eq(oracle_check(&r, p->q, p->k, p->v, p->o, p->lse, &p->args), ATTENTION_OK);
    cr_expect_leq(r.mean_abs, 1.6 * r.rounding_mean_abs + 1e-9,
                  "N=%" PRId64 " D=%" PRId64 " %s causal=%d: mean error %.3fx that of rounding",
                  p->args.seq, p->args.head_dim, dtype_name(p->args.dtype), p->args.causal,
                  r.mean_abs / r.rounding_mean_abs);
}

// A head of `all`, computed by itself in `one`, gets the bits that it has there.
static inline void expect_same_alone(problem *one, const problem *all, int64_t head,
                                     attention_function *forward)
{
    const int64_t at = head * one->count;
    memcpy(one->q, all->q + at, (size_t)one->count * sizeof *one->q);
    memcpy(one->k, all->k + at, (size_t)one->count * sizeof *one->k);
    memcpy(one->v, all->v + at, (size_t)one->count * sizeof *one->v);
    problem_run(one, forward);
    cr_expect_arr_eq(one->o, all->o + at, (size_t)one->count * sizeof *one->o);
    cr_expect_arr_eq(one->lse, all->lse + head * one->rows, (size_t)one->rows * sizeof *one->lse);
}

static inline void set_column(float *x, int64_t rows, int64_t d, int64_t column, float value)
{
    for (int64_t r = 0; r < rows; r++) x[r * d + column] = value;
}

#endif
