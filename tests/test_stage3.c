// Stage 3's two kernels in the emulator.
#include "cuda_support.h"

#define SUITE            stage3
#define STAGE            attention_forward_stage3_emulated
#define TRACED           attention_forward_stage3_emulated_traced
#define PREVIOUS         attention_forward_stage2
#define BLOCK_Q          128
#define BLOCK_K          64
#define PREVIOUS_BLOCK_Q 128
#define PREVIOUS_BLOCK_K 64
#define SKIPS            false
#include "cuda_stage.h"

// Up to N = 4096, where the weights are small and P's rounding counts most.
Test(stage3, is_the_mean_error_bounded_up_to_4096, .timeout = 300)
{
    for (int turn = 0; turn < 8; turn++) {
        const int64_t n = turn == 0 || turn == 7 ? 4096 : 2048;
        problem p = cuda_turn(turn, 1, 1, LONGEST < n ? LONGEST : n, BLOCK_Q, BLOCK_K);
        problem_draw(&p, 0, 1);
        problem_run(&p, STAGE);
        cuda_judge(&p);
        problem_free(&p);
    }
}

#undef SUITE
#undef STAGE
#undef TRACED
#undef BLOCK_Q
#undef BLOCK_K
#define SUITE   stage3_scalar
#define STAGE   attention_forward_stage3_scalar_emulated
#define TRACED  attention_forward_stage3_scalar_emulated_traced
#define BLOCK_Q 64
#define BLOCK_K 32
#include "cuda_stage.h"
