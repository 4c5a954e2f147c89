// The oracle and the rule it judges by: against PyTorch's float64, against a plainer formula, and
// with faults that it must see.
#include "golden.h"
#include "support.h"

// PyTorch's float64 answers. In fp32 the inputs' last bits, which come from each library's own
// logf and cosf, move the answer by up to 3e-7; rounding to 16 bits hides them, unless an input
// lies on the edge between two values of the type.
Test(oracle, does_it_agree_with_pytorch_in_float64)
{
    const double bound[] = {5e-7, 5e-7, 6e-5}; // fp32, and one input one unit away
    int rows = 0, exact = 0, sixteen_bit = 0;
    FILE *file = golden_open();
    golden_row g;
    for (; golden_next(file, &g); rows++) {
        problem p = golden_problem(&g);
        double worst = 0;
        for (int s = 0; s < GOLDEN_SAMPLES; s++) {
            const int64_t i = g.index[s];
            worst = fmax(worst, fabs(golden_exact(&p, i).o[i % g.head_dim] - g.value[s]));
        }
        cr_expect_leq(worst, bound[g.dtype], "%g: %s", worst, g.line);
        sixteen_bit += g.dtype != DTYPE_FP32;
        exact += g.dtype != DTYPE_FP32 && worst < 5e-9; // the file has ten digits
        problem_free(&p);
    }
    fclose(file);
    cr_expect_eq(rows, GOLDEN_ROWS);
    cr_expect_gt(2 * exact, sixteen_bit, "%d of %d", exact, sixteen_bit);
}

// exp without a maximum, in long double: fine for small scores.
Test(oracle, does_it_agree_with_the_plain_formula)
{
    for (int turn = 0; turn < 12; turn++) {
        problem p = problem_new(2, 2, 9 + turn, 1 + 7 * turn);
        const int64_t n = p.args.seq, d = p.args.head_dim;
        p.args.causal = turn % 2;
        p.args.scale *= turn % 3 == 0 ? -1 : 1;
        problem_draw(&p, (uint32_t)turn, 1);
        for (int64_t row = 0; row < p.rows; row++) {
            double scratch[64];
            oracle_row exact;
            oracle_compute_row(&exact, scratch, p.q, p.k, p.v, &p.args, row / n, row % n);
            const float *k = p.k + row / n * n * d, *v = p.v + row / n * n * d;
            long double sum = 0, o[HEAD_DIM_MAX] = {0};
            for (int64_t j = 0; j < (p.args.causal ? row % n + 1 : n); j++) {
                long double s = 0;
                for (int64_t x = 0; x < d; x++) s += (long double)p.q[row * d + x] * k[j * d + x];
                const long double weight = expl(s * p.args.scale);
                sum += weight;
                for (int64_t x = 0; x < d; x++) o[x] += weight * v[j * d + x];
            }
            cr_expect_float_eq(exact.lse, (double)logl(sum), 1e-13);
            for (int64_t x = 0; x < d; x++)
                cr_expect_float_eq(exact.o[x], (double)(o[x] / sum), 1e-13);
        }
        problem_free(&p);
    }
}

// One key, V = 1: half a unit of 1 in the type, one rounding unit of the type, and little more.
Test(oracle, is_the_bound_no_wider_than_the_rule)
{
    for (int dtype = 0; dtype < 3; dtype++) {
        problem p = problem_new(1, 1, 1, 16);
        p.args.dtype = (attention_dtype)dtype;
        fill(p.q, p.count, 0);
        fill(p.k, p.count, 0);
        fill(p.v, p.count, 1);
        double scratch[1];
        oracle_row exact;
        oracle_compute_row(&exact, scratch, p.q, p.k, p.v, &p.args, 0, 0);
        const double unit = dtype_unit_roundoff(p.args.dtype);
        cr_expect_geq(exact.bound[0], 2 * unit);
        cr_expect_leq(exact.bound[0], 2 * unit + 3e-7);
        problem_free(&p);
    }
    problem p = problem_new(1, 1, 257, 64); // and in fp32 within what sums of 64 products may lose
    problem_draw(&p, 1, 1);
    for (int64_t i = 0; i < 1000; i++) cr_expect_leq(golden_exact(&p, i).bound[i % 64], 8e-6);
    problem_free(&p);
}

// At a tolerance of 1e-2 a leaked padding key passes unnoticed. Here: V of N keys, softmax of all
// that the last tile of 64 would hold, the rest zeros.
Test(oracle, are_leaked_padding_keys_seen)
{
    const int64_t lengths[] = {1, 63, 65, 257, 513};
    for (int dtype = 0; dtype < 3; dtype++)
        for (int i = 0; i < 5; i++) {
            const int64_t n = lengths[i], padded = (n + 63) / 64 * 64;
            problem p = problem_new(1, 1, n, 64), leak = problem_new(1, 1, padded, 64);
            p.args.dtype = leak.args.dtype = (attention_dtype)dtype;
            problem_draw(&p, 5, 1);
            float *const from[] = {p.q, p.k, p.v}, *const to[] = {leak.q, leak.k, leak.v};
            for (int t = 0; t < 3; t++) {
                fill(to[t], leak.count, 0);
                memcpy(to[t], from[t], (size_t)p.count * sizeof(float));
            }
            problem_run(&leak, attention_forward_stage0);
            oracle_report r;
            cr_assert_eq(oracle_check(&r, p.q, p.k, p.v, leak.o, NULL, &p.args), ATTENTION_OK);
            cr_expect_gt(r.failed, 0, "%s N=%" PRId64, dtype_name(p.args.dtype), n);
            cr_expect_gt(r.max_ratio, 1);
            cr_assert_eq(oracle_check(&r, p.q, p.k, p.v, p.o, leak.lse, &p.args), ATTENTION_OK);
            cr_expect_eq(r.failed, p.count + p.rows); // o was never computed, and lse is wrong
            problem_free(&p);
            problem_free(&leak);
        }
}

// A key at -inf weighs nothing, and must not make the bound of its row infinite or NaN.
Test(oracle, does_a_masked_key_leave_the_bound_as_it_is)
{
    problem p = problem_new(1, 1, 9, 1);
    for (int dtype = 0; dtype < 3; dtype++) {
        p.args.dtype = (attention_dtype)dtype;
        problem_draw(&p, 1, 1);
        for (int64_t r = 0; r < 9; r++) p.q[r] = fabsf(p.q[r]) + 0.25f;
        p.k[0] = p.k[5] = -INFINITY;
        problem_run(&p, attention_forward_stage0);
        for (int64_t i = 0; i < 9; i++) {
            const oracle_row exact = golden_exact(&p, i);
            cr_expect_leq(exact.bound[0], 4 * dtype_unit_roundoff(p.args.dtype) + 2e-6);
            cr_expect_leq(fabs((double)p.o[i] - exact.o[0]), exact.bound[0]);
        }
        oracle_report r;
        p.o[4] += 0.05f;
        cr_assert_eq(oracle_check(&r, p.q, p.k, p.v, p.o, p.lse, &p.args), ATTENTION_OK);
        cr_expect_eq(r.failed, 1);
        cr_expect_eq(r.first_failed, 4);
    }
    problem_free(&p);
}

// Where the exact answer is not finite, both must be alike: inf is no substitute for NaN.
Test(oracle, must_infinities_and_nan_be_alike)
{
    problem p = problem_new(1, 1, 4, 1);
    oracle_report r;
    fill(p.q, 4, 1);
    fill(p.k, 4, -INFINITY);
    fill(p.v, 4, 1);
    fill(p.o, 4, 0);
    fill(p.lse, 4, -INFINITY);
    cr_assert_eq(oracle_check(&r, p.q, p.k, p.v, p.o, p.lse, &p.args), ATTENTION_OK);
    cr_expect_eq(r.failed, 0);
    p.lse[2] = INFINITY;
    p.o[1] = NAN;
    cr_assert_eq(oracle_check(&r, p.q, p.k, p.v, p.o, p.lse, &p.args), ATTENTION_OK);
    cr_expect_eq(r.failed, 2);
    p.k[3] = NAN;
    fill(p.o, 4, NAN);
    fill(p.lse, 4, NAN);
    cr_assert_eq(oracle_check(&r, p.q, p.k, p.v, p.o, p.lse, &p.args), ATTENTION_OK);
    cr_expect_eq(r.failed, 0);
    p.o[0] = INFINITY;
    p.o[1] = 0;
    p.lse[2] = -INFINITY;
    cr_assert_eq(oracle_check(&r, p.q, p.k, p.v, p.o, p.lse, &p.args), ATTENTION_OK);
    cr_expect_eq(r.failed, 3);
    cr_expect_eq(r.max_abs, INFINITY, "a table would say that nothing is wrong");
    problem_free(&p);
}

// [29] Useful FLOPs from the shape alone.
Test(oracle, are_useful_flops_counted_from_the_shape)
{
    attention_args a = attention_args_default(1, 1, 2048, 64);
    cr_expect_eq(attention_useful_flops(&a), 1073741824.0);
    a.causal = true;
    cr_expect_eq(attention_useful_flops(&a), 537133056.0);
    a.seq = 1;
    cr_expect_eq(attention_useful_flops(&a), 256.0);
    a.block_q = 7;
    a.threads = 9;
    cr_expect_eq(attention_useful_flops(&a), 256.0);
}

// [32] One element wrong, NaN, infinite or missing, or one lse: the judgement must see it.
Test(oracle, is_one_corrupted_element_seen)
{
    const float bad[] = {NAN, INFINITY, -INFINITY, 0, 1e-4f};
    for (int dtype = 0; dtype < 3; dtype++)
        for (int i = 0; i < 5; i++)
            for (int in_lse = 0; in_lse < 2; in_lse++) {
                problem p = problem_new(1, 2, 65, 16);
                oracle_report r;
                p.args.dtype = (attention_dtype)dtype;
                problem_draw(&p, 3, 1);
                problem_run(&p, attention_forward_stage0);
                float *x = in_lse ? &p.lse[77] : &p.o[77 * 16 + 5];
                if (i == 4)
                    *x +=
                        in_lse
                            ? 1e-4f
                            : (float)(0.05 * dtype_unit_roundoff((attention_dtype)dtype) * 0x1p11) +
                                  1e-5f;
                else
                    *x = bad[i];
                cr_assert_eq(oracle_check(&r, p.q, p.k, p.v, p.o, p.lse, &p.args), ATTENTION_OK);
                cr_expect_eq(r.failed, 1, "%s %g lse=%d", dtype_name((attention_dtype)dtype),
                             (double)bad[i], in_lse);
                cr_expect_eq(r.first_failed, 77 * 16 + (in_lse ? 0 : 5));
                problem_free(&p);
            }
}

// A key at -inf weighs nothing; it must not widen the bound of the rows that see it.
Test(oracle, does_a_key_at_minus_infinity_leave_the_bound_finite)
{
    problem p = problem_new(1, 1, 3, 1);
    oracle_report r;
    fill(p.q, 3, 1);
    fill(p.k, 3, 0);
    fill(p.v, 3, 1);
    p.k[1] = -INFINITY;
    problem_run(&p, attention_forward_stage2);
    p.o[2] += 0.01f;
    cr_assert_eq(oracle_check(&r, p.q, p.k, p.v, p.o, p.lse, &p.args), ATTENTION_OK);
    cr_expect_eq(r.failed, 1);
    problem_free(&p);
}

Test(oracle, does_it_sample_long_sequences_from_the_first_row_to_the_last)
{
    problem p = problem_new(1, 1, 2049, 2);
    oracle_report r;
    problem_draw(&p, 3, 1);
    problem_run(&p, attention_forward_stage2);
    p.o[0] = p.o[2048 * 2] = 77;
    cr_assert_eq(oracle_check(&r, p.q, p.k, p.v, p.o, p.lse, &p.args), ATTENTION_OK);
    cr_expect_eq(r.failed, 2);
    cr_expect_eq(r.rows, 2049);
    cr_expect_eq(r.rows_checked, 512);
    problem_free(&p);
}
