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

// The whole row is one step, whatever the tiles are called.
Test(stage0, is_its_trace_the_whole_row_in_one_step)
{
    for (int64_t n = 1; n <= 257; n += 64) {
        problem p = problem_new(1, 2, n, 8);
        rebase_step step;
        rebase_trace trace = {.row = 2 * n - 1, .steps = &step, .capacity = 1};
        p.args.block_q = p.args.block_k = 3;
        p.args.trace = &trace;
        problem_draw(&p, 3, 1);
        problem_run(&p, STAGE);
        cr_assert_eq(trace.count, 1);
        cr_expect(step.first_key == 0 && step.keys == n && step.correction == 0);
        cr_expect_eq(step.m_old, -INFINITY);
        cr_expect_float_eq(step.l, expf(p.lse[2 * n - 1] - step.m_new), 2e-6f * step.l);
        problem_free(&p);
    }
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

// [19] N = 46341 is the first whose square does not fit 32 bits. Under a memory limit the bytes are
// named in full; nobody's o or lse is touched, and no memory is kept.
Test(stage0, does_it_name_the_bytes_it_cannot_have)
{
    const int64_t lengths[] = {20000, 46340, 46341, 65536};
    problem p = problem_new(1, 1, 65536, 1);
    problem_draw(&p, 3, 1);
    const int64_t before = tensor_bytes();
#ifndef __SANITIZE_ADDRESS__ // which reserves terabytes of address space
    const struct rlimit limit = {(rlim_t)1 << 30, (rlim_t)1 << 30};
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    for (int i = 0; i < 4; i++) {
        char bytes[64];
        attention_args args = p.args;
        args.seq = lengths[i];
        snprintf(bytes, sizeof bytes, "%" PRId64 " bytes", 2 * lengths[i] * lengths[i] * 4);
        cr_expect_eq(STAGE(p.q, p.k, p.v, p.o, p.lse, &args), ATTENTION_NO_MEMORY);
        cr_expect(strstr(status_message(), bytes), "%s lacks %s", status_message(), bytes);
    }
#endif
    (void)lengths;
    attention_args args = p.args; // only the shape matters: nothing is touched
    args.seq = 4294967296;
    cr_expect_eq(STAGE(p.q, p.k, p.v, p.o, p.lse, &args), ATTENTION_NO_MEMORY);
    cr_expect(strstr(status_message(), "1.48e+20 bytes, more than 64 bits"), "%s",
              status_message());
    for (int64_t i = 0; i < p.count; i++) cr_assert_eq(p.o[i], guard_value);
    for (int64_t r = 0; r < p.rows; r++) cr_assert_eq(p.lse[r], guard_value);
    cr_expect_eq(tensor_bytes(), before);
    problem_free(&p);
}
