// Stage 2: what every stage must pass, and what is its own.
#define SUITE     stage2
#define STAGE     attention_forward_stage2
#define PREVIOUS  attention_forward_stage1
#define HAS_TILES 1
#include "every_stage.h"

Test(stage2, does_it_tally_ragged_tiles)
{
    problem p = problem_new(2, 3, 65, 24);
    attention_counters c;
    p.args.counters = &c;
    p.args.block_q = 20;
    p.args.block_k = 16;
    problem_draw(&p, 3, 1);
    problem_run(&p, STAGE);
    cr_expect_eq(c.tiles, 6 * 4 * 5);
    cr_expect_eq(c.flops, 6 * 4LL * 65 * 65 * 24);
    cr_expect_eq(c.score_bytes, 0);
    cr_expect_eq(c.bytes, 6LL * (2 * 65 * 24 + 4 * 2 * 65 * 24) * 4); // k and v anew for 4 tiles
    problem_free(&p);
}

Test(stage2, does_its_scratch_stay_the_same_at_any_length)
{
    int64_t scratch[2];
    for (int i = 0; i < 2; i++) {
        problem p = problem_new(1, 2, i ? 1500 : 300, 64);
        problem_draw(&p, 3, 1);
        const int64_t before = tensor_bytes();
        tensor_reset_peak();
        problem_run(&p, STAGE);
        scratch[i] = tensor_peak_bytes() - before;
        cr_expect_eq(tensor_bytes(), before);
        problem_free(&p);
    }
    cr_expect_eq(scratch[0], 2 * 128 * (128 + 64 + 2) * 4);
    cr_expect_eq(scratch[1], scratch[0]);
}

// [10] No reduced-precision products hide behind fp32: stages 0 and 2 agree to 1e-5.
Test(stage2, is_fp32_really_fp32)
{
    problem p = problem_new(2, 4, 1024, 64);
    problem_draw(&p, 0, 1);
    problem_run(&p, attention_forward_stage0);
    float *explicit = copy_of(p.o, p.count);
    problem_run(&p, STAGE);
    cr_expect_leq(tensor_compare(p.o, explicit, p.count).max_abs, 2e-6);
    free(explicit);
    problem_free(&p);
}

// [17] Positions beyond 16 bits: causal, the last key dominant.
Test(stage2, are_positions_beyond_sixteen_bits_right)
{
    const int64_t n[] = {32768, 32769, 65537};
    for (int i = 0; i < 3; i++) {
        problem p = problem_new(1, 1, n[i], 2);
        p.args.causal = true;
        p.args.scale = 1;
        p.args.block_q = 1024; // only the mask and the last rows matter here
        p.args.block_k = 1024;
        fill(p.q, p.count, 0);
        fill(p.k, p.count, 0);
        fill(p.v, p.count, 1);
        for (int64_t r = 0; r < n[i]; r++) p.q[2 * r] = 1;
        p.k[2 * (n[i] - 1)] = 60;
        p.v[2 * (n[i] - 1)] = p.v[2 * n[i] - 1] = 5;
        problem_run(&p, STAGE);
        for (int64_t r = 0; r < n[i] - 1; r++) cr_assert_eq(p.o[2 * r], 1, "row %" PRId64, r);
        cr_expect_eq(p.o[2 * n[i] - 1], 5);
        problem_free(&p);
    }
}

Test(stage2, is_the_mask_a_matter_of_positions_and_not_of_tiles)
{
    problem p = problem_new(1, 1, 97, 8);
    p.args.causal = true;
    problem_draw(&p, 5, 1);
    p.args.block_q = p.args.block_k = 97;
    problem_run(&p, STAGE);
    float *whole = copy_of(p.o, p.count);
    for (int64_t block_q = 1; block_q < 97; block_q += 13)
        for (int64_t block_k = 1; block_k < 97; block_k += 11) {
            p.args.block_q = block_q;
            p.args.block_k = block_k;
            problem_run(&p, STAGE);
            cr_expect_lt(tensor_compare(p.o, whole, p.count).max_abs, 2e-6, "%" PRId64 "x%" PRId64,
                         block_q, block_k);
        }
    free(whole);
    problem_free(&p);
}
