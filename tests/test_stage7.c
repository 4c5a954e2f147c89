// Stage 7 in the emulator.
#include "cuda_support.h"

#define SUITE            stage7
#define STAGE            attention_forward_stage7_emulated
#define TRACED           attention_forward_stage7_emulated_traced
#define PREVIOUS         attention_forward_stage6_emulated
#define BLOCK_Q          64
#define BLOCK_ROWS       (n <= 64 ? 64 : p.args.causal && n != 300 ? 128 : 192) // of the tally's
#define ROWS_COMPUTED    (p.args.causal ? BLOCK_ROWS : 64)
#define BLOCK_K          128
#define PREVIOUS_BLOCK_Q 64
#define PREVIOUS_BLOCK_K 128
#define SKIPS            true
#include "cuda_stage.h"

// How many consumers a block has follows from the shape (launch): a head alone and the same head
// among others get the same bits.
Test(stage7, are_the_bits_the_same_with_any_number_of_consumers)
{
    for (int turn = 0; turn < 8; turn++) {
        problem many = cuda_turn(turn, 1, 5, 200, BLOCK_Q, BLOCK_K);
        problem one = cuda_turn(turn, 1, 1, 200, BLOCK_Q, BLOCK_K);
        problem_draw(&many, 9, 2);
        problem_run(&many, STAGE);
        expect_same_alone(&one, &many, 0, STAGE);
        problem_free(&many);
        problem_free(&one);
    }
}

// More tiles of queries than the emulated card has multiprocessors, in four rounds: the first and
// the last head have the bits that they have alone.
Test(stage7, does_a_block_work_off_tile_after_tile)
{
    for (int turn = 0; turn < 8; turn += TURN) {
        enum { HEADS = 7, N = 300 };
        problem all = cuda_turn(turn, 1, HEADS, N, BLOCK_Q, BLOCK_K);
        problem one = cuda_turn(turn, 1, 1, N, BLOCK_Q, BLOCK_K);
        problem_draw(&all, 4, 2);
        problem_run(&all, STAGE);
        problem_judge(&all);
        for (int64_t h = 0; h < HEADS; h += HEADS - 1) expect_same_alone(&one, &all, h, STAGE);
        problem_free(&all);
        problem_free(&one);
    }
}

// What does not fill a round is cut into smaller tiles, which fewer consumers take. In the last of
// three rounds one or two of three leave at D = 64; in the last of two one of two at D = 128, and
// one of three at D = 64, where a place is then filled three times.
Test(stage7, may_consumers_leave_before_the_last_round)
{
    enum { FP16_64 = 0, FP16_128 = 2 };
    const struct {
        int64_t heads, n;
        int turn;
    } cases[] = {{4, 400, FP16_64}, {4, 500, FP16_64}, {1, 560, FP16_128}, {1, 1030, FP16_64}};
    for (int c = 0; c < 4; c++) {
        const int64_t heads = cases[c].heads;
        problem all = cuda_turn(cases[c].turn, 1, heads, cases[c].n, BLOCK_Q, BLOCK_K);
        problem one = cuda_turn(cases[c].turn, 1, 1, cases[c].n, BLOCK_Q, BLOCK_K);
        problem_draw(&all, 5, 2);
        problem_run(&all, STAGE);
        problem_judge(&all);
        for (int64_t h = 0; heads > 1 && h < heads; h += heads - 1)
            expect_same_alone(&one, &all, h, STAGE);
        problem_free(&all);
        problem_free(&one);
    }
}
