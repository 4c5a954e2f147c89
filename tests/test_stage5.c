// Stage 5 in the emulator.
#include "cuda_support.h"

#define SUITE            stage5
#define STAGE            attention_forward_stage5_emulated
#define TRACED           attention_forward_stage5_emulated_traced
#define PREVIOUS         attention_forward_stage4_emulated
#define BLOCK_Q          128
#define BLOCK_K          64
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
        problem_run(&p, STAGE);
        for (int64_t r = 0; r < p.rows; r++)
            cr_expect_float_eq(p.lse[r], before[r], 1e-6f * fmaxf(1, fabsf(before[r])));
        free(before);
        problem_free(&p);
    }
}
