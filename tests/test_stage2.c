// Stage 2: what every stage must pass, and what is its own.
#define SUITE     stage2
#define STAGE     attention_forward_stage2
#define PREVIOUS  attention_forward_stage1
#define HAS_TILES 1
#include "every_stage.h"

Test(stage2, does_it_tally_ragged_tiles)
{
    const int64_t shapes[][4] = {{1, 1, 16, 16},    {2, 24, 1, 1},  {64, 24, 16, 32},
                                 {65, 24, 20, 16},  {65, 3, 64, 1}, {130, 8, 1000, 7},
                                 {129, 5, 43, 1000}};
    for (int turn = 0; turn < 14; turn++) {
        const int64_t n = shapes[turn / 2][0], d = shapes[turn / 2][1];
        problem p = problem_new(2, 3, n, d);
        attention_counters c;
        p.args.counters = &c;
        p.args.block_q = shapes[turn / 2][2];
        p.args.block_k = shapes[turn / 2][3];
        p.args.causal = turn % 2; // computed all the same, then masked
        problem_draw(&p, 3, 1);
        problem_run(&p, STAGE);
        const int64_t q_tiles = (n + p.args.block_q - 1) / p.args.block_q;
        const int64_t k_tiles = (n + p.args.block_k - 1) / p.args.block_k;
        cr_expect_eq(c.tiles, 6 * q_tiles * k_tiles);
        cr_expect_eq(c.flops, 6 * 4 * n * n * d);
        cr_expect_eq(c.score_bytes, 0);
        cr_expect_eq(c.bytes, 6 * (2 * n * d + q_tiles * 2 * n * d) * 4); // k, v once a q tile
        problem_free(&p);
    }
}

// Same keys a step, same steps, whatever block_q is.
Test(stage2, is_its_trace_that_of_stage_1)
{
    const int64_t blocks[] = {1, 7, 33, 64, 200, 1000};
    for (int turn = 0; turn < 12; turn++) {
        problem p = problem_new(1, 2, 129, 16);
        rebase_step steps[2][129];
        rebase_trace trace[2];
        p.args.causal = turn % 2;
        p.args.block_k = blocks[turn / 2];
        p.args.block_q = 1 + 11 * turn;
        problem_draw(&p, 3, 2);
        for (int s = 0; s < 2; s++) {
            trace[s] = (rebase_trace){.row = 129 + 70, .steps = steps[s], .capacity = 129};
            p.args.trace = &trace[s];
            problem_run(&p, s ? STAGE : attention_forward_stage1);
        }
        cr_assert_eq(trace[0].count, trace[1].count);
        expect_same_steps(steps[0], steps[1], trace[0].count);
        problem_free(&p);
    }
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

// [19] Tiles "larger than seq mean seq", and their area must not wrap either: 2^32 x (2^32 + 3)
// floats are 7.4e19 bytes, not the 48 GiB that 64 bits would leave of them.
Test(stage2, is_a_tile_that_64_bits_cannot_count_refused)
{
    float x = 0, o = guard_value;
    attention_args args = attention_args_default(1, 1, (int64_t)1 << 32, 1);
    args.block_q = args.block_k = INT64_MAX;
    args.threads = 1;
    cr_expect_eq(STAGE(&x, &x, &x, &o, NULL, &args), ATTENTION_NO_MEMORY);
    cr_expect(strstr(status_message(), "7.38e+19 bytes, more than 64 bits"), "%s",
              status_message());
    cr_expect_eq(o, guard_value);
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

// [9] The scale and log2(e) stay out of the 16-bit inputs.
Test(stage2, does_bf16_keep_the_scale_in_fp32)
{
    problem p = problem_new(1, 1, 4096, 128);
    p.args.dtype = DTYPE_BF16;
    problem_draw(&p, 9, 2);
    problem_run(&p, STAGE);
    problem_judge(&p);
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
