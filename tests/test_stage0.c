// Stage 0: what every stage must pass, and what is its own: P, and the memory it needs.
#define SUITE     stage0
#define STAGE     attention_forward_stage0
#define PREVIOUS  attention_forward_stage0
#define HAS_TILES 0
#include "every_stage.h"

#include <sys/resource.h>

Test(stage0, do_the_rows_of_p_sum_to_one_and_respect_causality)
{
    for (int causal = 0; causal < 2; causal++) {
        problem p = problem_new(1, 2, 70, 16);
        p.args.causal = causal;
        p.args.p_out = guarded(2 * 70 * 70);
        problem_draw(&p, 3, 1);
        problem_run(&p, STAGE);
        cr_expect(guards_intact(p.args.p_out, 2 * 70 * 70));
        for (int64_t r = 0; r < 140; r++) {
            const float *row = p.args.p_out + r * 70;
            double sum = 0, o = 0;
            for (int64_t j = 0; j < 70; j++) {
                sum += (double)row[j];
                o += (double)row[j] * (double)p.v[(r / 70 * 70 + j) * 16];
                if (causal && j > r % 70) cr_expect_eq(row[j], 0);
            }
            cr_expect_float_eq(sum, 1, 1e-6);
            cr_expect_float_eq(o, (double)p.o[r * 16], 2e-6); // O = P V
        }
        free(p.args.p_out - GUARD);
        problem_free(&p);
    }
}

Test(stage0, does_it_tally_the_whole_square)
{
    problem p = problem_new(2, 3, 65, 24);
    attention_counters c;
    p.args.counters = &c;
    p.args.causal = true; // computed all the same, then masked
    problem_draw(&p, 3, 1);
    problem_run(&p, STAGE);
    cr_expect_eq(c.flops, 6 * 4LL * 65 * 65 * 24);
    cr_expect_eq(c.score_bytes, 6 * 4LL * 65 * 65 * 4);
    cr_expect_eq(c.bytes, 6 * 4LL * 65 * 24 * 4);
    problem_free(&p);
}

Test(stage0, is_its_scratch_twice_the_score_matrix_and_then_given_back)
{
    problem p = problem_new(1, 2, 100, 8);
    problem_draw(&p, 3, 1);
    const int64_t before = tensor_bytes();
    tensor_reset_peak();
    problem_run(&p, STAGE);
    cr_expect_eq(tensor_peak_bytes() - before, 2 * 2 * 100 * 100 * 4 + 2 * 100 * 4);
    cr_expect_eq(tensor_bytes(), before);
    problem_free(&p);
}

// [19] Under a memory limit it says what it needs instead of dying.
Test(stage0, does_it_name_the_bytes_it_cannot_have)
{
    problem p = problem_new(1, 1, 20000, 1);
    problem_draw(&p, 3, 1);
#ifndef __SANITIZE_ADDRESS__ // which reserves terabytes of address space
    const struct rlimit limit = {(rlim_t)1 << 30, (rlim_t)1 << 30};
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    cr_expect_eq(STAGE(p.q, p.k, p.v, p.o, p.lse, &p.args), ATTENTION_NO_MEMORY);
    cr_expect(strstr(status_message(), "3200000000 bytes"), "%s", status_message());
#endif
    attention_args args = p.args; // only the shape matters: nothing is touched
    args.seq = 4294967296;
    cr_expect_eq(STAGE(p.q, p.k, p.v, p.o, p.lse, &args), ATTENTION_NO_MEMORY);
    cr_expect(strstr(status_message(), "more than 64 bits"), "%s", status_message());
    for (int64_t i = 0; i < p.count; i++) cr_assert_eq(p.o[i], guard_value);
    problem_free(&p);
}
