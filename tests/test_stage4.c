// Stage 4 in the emulator.
#include "cuda_support.h"

#define SUITE            stage4
#define STAGE            attention_forward_stage4_emulated
#define TRACED           attention_forward_stage4_emulated_traced
#define PREVIOUS         attention_forward_stage3_emulated
#define BLOCK_Q          128
#define BLOCK_K          64
#define PREVIOUS_BLOCK_Q 128
#define PREVIOUS_BLOCK_K 64
#define SKIPS            true
#include "cuda_stage.h"

// Skipping is no approximation, and no other order of sums.
Test(stage4, are_its_bits_those_of_stage_3)
{
    for (int i = 0; i < CUDA_LENGTHS; i += STEP)
        for (int turn = 0; turn < 8; turn++) {
            problem p =
                cuda_turn(turn, 1, 2, cuda_lengths[i] > 600 ? 600 : cuda_lengths[i], 128, 64);
            problem_draw(&p, (uint32_t)i, 2);
            problem_run(&p, PREVIOUS);
            float *before = copy_of(p.o, p.count), *lse = copy_of(p.lse, p.rows);
            problem_run(&p, STAGE);
            cr_expect_arr_eq(p.o, before, (size_t)p.count * sizeof *before);
            cr_expect_arr_eq(p.lse, lse, (size_t)p.rows * sizeof *lse);
            free(before);
            free(lse);
            problem_free(&p);
        }
}

Test(stage4, is_the_bound_the_end_of_what_the_tile_sees)
{
    for (int64_t n = 1; n < 300; n += 13)
        for (int64_t rows = 1; rows < 200; rows += 31)
            for (int64_t i = 0; i < n; i += rows) {
                int64_t end = 0;
                for (int64_t r = i; r < i + rows && r < n; r++) end = r + 1; // row r sees 0..r
                cr_expect_eq(attention_keys_end_stage4_emulated(i, rows, n, true), end);
                cr_expect_eq(attention_keys_end_stage4_emulated(i, rows, n, false), n);
            }
}
