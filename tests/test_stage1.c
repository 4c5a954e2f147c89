// Stage 1: what every stage must pass, and what is its own.
#define SUITE     stage1
#define STAGE     attention_forward_stage1
#define PREVIOUS  attention_forward_stage0
#define HAS_TILES 1
#include "every_stage.h"

Test(stage1, does_it_tally_every_block_of_every_row)
{
    const int64_t shapes[][4] = {{1, 1, 16, 1},   {2, 24, 16, 1}, {64, 24, 16, 7},
                                 {65, 24, 16, 9}, {65, 3, 1, 2},  {130, 8, 1000, 5}};
    for (int turn = 0; turn < 12; turn++) {
        const int64_t n = shapes[turn / 2][0], d = shapes[turn / 2][1];
        problem p = problem_new(2, 3, n, d);
        attention_counters c;
        p.args.counters = &c;
        p.args.block_k = shapes[turn / 2][2];
        p.args.block_q = shapes[turn / 2][3]; // means nothing here
        p.args.causal = turn % 2;             // computed all the same, then masked
        problem_draw(&p, 3, 1);
        problem_run(&p, STAGE);
        const int64_t blocks = (n + p.args.block_k - 1) / p.args.block_k;
        cr_expect_eq(c.tiles, 6 * n * blocks);
        cr_expect_eq(c.flops, 6 * 4 * n * n * d);
        cr_expect_eq(c.score_bytes, 0);
        cr_expect_eq(c.bytes, 6 * (2 * n * d + n * 2 * n * d) * 4); // k and v anew for each row
        problem_free(&p);
    }
}

Test(stage1, does_it_hold_one_block_and_one_row_a_thread)
{
    problem p = problem_new(1, 1, 1000, 8);
    problem_draw(&p, 3, 1);
    const int64_t before = tensor_bytes();
    tensor_reset_peak();
    problem_run(&p, STAGE);
    cr_expect_eq(tensor_peak_bytes() - before, 2 * (128 + 8) * 4);
    cr_expect_eq(tensor_bytes(), before);
    problem_free(&p);
}
