// Stage 5 in the emulator.
#include "cuda_support.h"

#define SUITE            stage5
#define STAGE            attention_forward_stage5_emulated
#define TRACED           attention_forward_stage5_emulated_traced
#define PREVIOUS         attention_forward_stage4_emulated
#define BLOCK_Q          128
#define BLOCK_K          STAGE5_BLOCK_K
#define PREVIOUS_BLOCK_Q 128
#define PREVIOUS_BLOCK_K 64
#define SKIPS            true
#include "cuda_stage.h"

// The weights are made in units of 2^-15 in fp16, and the end divides it out: not only in O.
Test(stage5, is_lse_that_of_stage_4)
{
    for (int turn = 0; turn < 8; turn++) {
        problem p = cuda_turn(turn, 1, 1, 200, 128, 64);
        problem_draw(&p, 4, 3);
        problem_run(&p, PREVIOUS);
        float *before = copy_of(p.lse, p.rows);
        p.args.block_k = attention_block_k(BLOCK_K, p.args.head_dim);
        problem_run(&p, STAGE);
        for (int64_t r = 0; r < p.rows; r++)
            cr_expect_float_eq(p.lse[r], before[r], 1e-6f * fmaxf(1, fabsf(before[r])));
        free(before);
        problem_free(&p);
    }
}

// Its positions are ints, and a tile must not run past the largest. The pointers are never
// followed.
Test(stage5, is_a_sequence_beyond_31_bits_refused)
{
    attention_args args = attention_args_default(1, 1, INT32_MAX - 127, 64);
    args.dtype = DTYPE_FP16;
    args.block_k = 64;
    void *const nowhere = (void *)(uintptr_t)64;
    const attention_status status = attention_forward_device_stage5_emulated(
        nowhere, nowhere, nowhere, nowhere, NULL, &args, NULL);
    cr_expect_eq(status, ATTENTION_BAD_ARGUMENT);
    cr_expect(strstr(status_message(), "31 bits"), "%s", status_message());
}
