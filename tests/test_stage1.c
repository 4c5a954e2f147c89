// Stage 1: what every stage must pass, and what is its own.
#define SUITE     stage1
#define STAGE     attention_forward_stage1
#define PREVIOUS  attention_forward_stage0
#define HAS_TILES 1
#include "every_stage.h"

Test(stage1, does_it_tally_every_block_of_every_row)
{
    problem p = problem_new(2, 3, 65, 24);
    attention_counters c;
    p.args.counters = &c;
    p.args.block_k = 16;
    problem_draw(&p, 3, 1);
    problem_run(&p, STAGE);
    cr_expect_eq(c.tiles, 6 * 65 * 5);
    cr_expect_eq(c.flops, 6 * 4LL * 65 * 65 * 24);
    cr_expect_eq(c.score_bytes, 0);
    cr_expect_eq(c.bytes, 6LL * (2 * 65 * 24 + 65 * 2 * 65 * 24) * 4); // k and v anew for each row
    problem_free(&p);
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
