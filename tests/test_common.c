// What the stages stand on: types, random numbers, tensors, products, options, the oracle, budgets.
#include <math.h>

#include "matmul.h"
#include "matmul_kernel.h"
#include "options.h"
#include "support.h"
#include "timing.h"
#include "util.h"

// ---- half.h -----------------------------------------------------------------------------------

Test(half, does_every_sixteen_bit_pattern_survive_the_way_there_and_back)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const float f = fp16_to_float((uint16_t)bits), b = bf16_to_float((uint16_t)bits);
        if (isnan(f))
            cr_expect(isnan(fp16_to_float(fp16_from_float(f))));
        else
            cr_expect_eq(fp16_from_float(f), bits);
        if (isnan(b))
            cr_expect(isnan(bf16_to_float(bf16_from_float(b))));
        else
            cr_expect_eq(bf16_from_float(b), bits);
    }
}

// Between two neighbours the nearer wins, and in the middle the one whose last bit is 0.
Test(half, does_rounding_go_to_nearest_even)
{
    for (uint32_t bits = 0; bits < 0x7bff; bits++) {
        const float low = fp16_to_float((uint16_t)bits), high = fp16_to_float((uint16_t)(bits + 1));
        const float middle = low + (high - low) / 2; // exact: a float has 13 bits more
        const uint32_t even = bits % 2 ? bits + 1 : bits;
        cr_expect_eq(fp16_from_float(middle), even);
        cr_expect_eq(fp16_from_float(nextafterf(middle, 0)), bits);
        cr_expect_eq(fp16_from_float(nextafterf(middle, INFINITY)), bits + 1);
        cr_expect_eq(fp16_from_float(-middle), even | 0x8000);
    }
    for (uint32_t bits = 0; bits < 0x7f7f; bits++) {
        const float low = bf16_to_float((uint16_t)bits), high = bf16_to_float((uint16_t)(bits + 1));
        const float middle = low + (high - low) / 2;
        cr_expect_eq(bf16_from_float(middle), bits % 2 ? bits + 1 : bits);
    }
}

Test(half, do_the_edges_of_fp16_and_bf16_behave)
{
    cr_expect_eq(fp16_from_float(65504), 0x7bff);
    cr_expect_eq(fp16_from_float(65519.996f), 0x7bff);
    cr_expect_eq(fp16_from_float(65520), 0x7c00);
    cr_expect_eq(fp16_from_float(-INFINITY), 0xfc00);
    cr_expect_eq(fp16_from_float(0x1p-24f), 1);
    cr_expect_eq(fp16_from_float(0x1p-25f), 0);
    cr_expect_eq(fp16_from_float(0x1.8p-25f), 1);
    cr_expect_eq(fp16_from_float(-0.0f), 0x8000);
    cr_expect_eq(bf16_from_float(0x1.fffffep127f), 0x7f80);
    cr_expect(isnan(dtype_round(NAN, DTYPE_FP16)) && isnan(dtype_round(NAN, DTYPE_BF16)));
    cr_expect_eq((double)dtype_round((float)dtype_max(DTYPE_BF16), DTYPE_BF16),
                 dtype_max(DTYPE_BF16));
    cr_expect_eq((double)fp16_to_float(0x7bff), dtype_max(DTYPE_FP16));
}

// ---- random.h ---------------------------------------------------------------------------------

Test(random, is_the_word_stream_mt19937)
{
    random_stream r;
    random_seed(&r, 5489);
    uint32_t word = 0;
    for (int i = 0; i < 10000; i++) word = random_word(&r);
    cr_expect_eq(word, 4123659995u); // the 10000th word, as the C++ standard requires it
}

// torch.manual_seed(0); torch.randn(...) begins so, whatever the size from 16 up.
Test(random, do_the_first_normals_match_pytorch)
{
    random_stream r;
    float x[33], y[16];
    random_seed(&r, 0);
    random_normal(&r, x, 16);
    const float expected[4] = {-1.1258398f, -1.1523602f, -0.2505786f, -0.4338788f};
    for (int i = 0; i < 4; i++) cr_expect_float_eq(x[i], expected[i], 1e-6f, "%.9g", (double)x[i]);
    random_seed(&r, 0);
    random_normal(&r, x, 33); // the last 16 are drawn anew, the first 17 are not
    memcpy(y, x, sizeof y);
    random_seed(&r, 0);
    random_normal(&r, x, 16);
    cr_expect_arr_eq(x, y, sizeof y);
}

// ---- tensor.h ---------------------------------------------------------------------------------

Test(tensor, is_a_size_that_wraps_refused_with_its_bytes)
{
    int64_t count = 7;
    cr_expect_eq(tensor_count("S", (int64_t)1 << 21, (int64_t)1 << 21, (int64_t)1 << 21, 1, &count),
                 ATTENTION_NO_MEMORY);
    cr_expect(strstr(status_message(), "S [2097152, 2097152, 2097152, 1]"), "%s", status_message());
    cr_expect(strstr(status_message(), "3.69e+19 bytes"), "%s", status_message());
    cr_expect_eq(tensor_count("S", 1, 1, 1, INT64_MAX, &count), ATTENTION_NO_MEMORY);
    cr_expect_eq(tensor_count("S", 1, 0, 1, 1, &count), ATTENTION_BAD_ARGUMENT);
    cr_expect_eq(count, 7);
    cr_expect_eq(tensor_count("S", 2, 1 << 10, 1 << 10, 1 << 10, &count), ATTENTION_OK);
    cr_expect_eq(count, (int64_t)1 << 31); // beyond int, no wrap
}

Test(tensor, is_more_than_the_machine_has_refused_before_it_is_touched)
{
    float *x = (float *)1;
    cr_expect_eq(tensor_new("huge", 1, 1 << 20, 1 << 20, 1 << 10, &x), ATTENTION_NO_MEMORY);
    cr_expect_null(x);
    cr_expect(strstr(status_message(), "4503599627370496 bytes (4.0 PiB)"), "%s", status_message());
}

Test(tensor, is_the_peak_tallied)
{
    float *a, *b;
    const int64_t before = tensor_bytes();
    tensor_reset_peak();
    cr_assert_eq(tensor_new("a", 1, 1, 10, 10, &a), ATTENTION_OK);
    cr_assert_eq(tensor_new("b", 1, 1, 1, 1, &b), ATTENTION_OK);
    cr_expect_eq((uintptr_t)a % 64, 0);
    tensor_free(a);
    cr_expect_eq(tensor_bytes() - before, 4);
    cr_expect_eq(tensor_peak_bytes() - before, 404);
    tensor_free(b);
    tensor_free(NULL);
    cr_expect_eq(tensor_bytes(), before);
}

// [32] A comparison that NaN cannot pass.
Test(tensor, does_a_nan_count_as_a_difference)
{
    const float x[3] = {1, NAN, INFINITY}, y[3] = {1, 2, INFINITY}, z[3] = {1, NAN, -INFINITY};
    cr_expect_eq(tensor_compare(x, y, 3).max_abs, INFINITY);
    cr_expect_eq(tensor_compare(y, x, 3).max_abs, INFINITY);
    cr_expect_eq(tensor_compare(x, x, 3).max_abs, 0);
    cr_expect_eq(tensor_compare(x, z, 3).max_abs, INFINITY);
    cr_expect_eq(tensor_compare(x, z, 3).worst, 2);
    cr_expect_eq(tensor_compare(x, y, 3).non_finite, 2);
}

// ---- matmul.h, for every instruction set this processor has -----------------------------------

static int kernels(const matmul_kernel *list[3])
{
    int count = 0;
    list[count++] = &matmul_kernel_base;
#if defined(__x86_64__) && !defined(ARCH_FIXED)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        list[count++] = &matmul_kernel_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
        list[count++] = &matmul_kernel_avx512;
#endif
    return count;
}

static void check_products(const matmul_kernel *kernel, int64_t rows, int64_t cols, int64_t depth)
{
    const int64_t lda = (rows > cols ? rows : cols) + depth + 3, ldb = lda + 1, ldc = cols + 5;
    const int64_t size = (rows + cols + depth) * ldb;
    float *a = guarded(size), *b = guarded(size), *c = guarded(rows * ldc), *start = NULL;
    random_stream r;
    random_seed(&r, 1);
    random_normal(&r, a, size);
    random_normal(&r, b, size);
    random_normal(&r, c, rows * ldc);
    start = copy_of(c, rows * ldc);
    for (int transposed = 0; transposed < 2; transposed++) {
        if (transposed && depth > 256) continue;
        memcpy(c, start, (size_t)(rows * ldc) * sizeof *c);
        if (transposed)
            kernel->abt(c, ldc, a, lda, b, ldb, rows, cols, depth, 0.5f);
        else
            kernel->ab(c, ldc, a, lda, b, ldb, rows, cols, depth);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < ldc; j++) {
                double sum = 0;
                for (int64_t t = 0; t < depth; t++)
                    sum += (double)a[i * lda + t] *
                           (double)(transposed ? b[j * ldb + t] : b[t * ldb + j]);
                const double exact = j >= cols    ? (double)start[i * ldc + j]
                                     : transposed ? 0.5 * sum
                                                  : (double)start[i * ldc + j] + sum;
                cr_assert_float_eq((double)c[i * ldc + j], exact,
                                   j >= cols ? 0 : 1e-6 * (double)(depth + 8),
                                   "%s %" PRId64 "x%" PRId64 "x%" PRId64 " at %" PRId64 ",%" PRId64,
                                   kernel->instruction_set, rows, cols, depth, i, j);
            }
        cr_assert(guards_intact(c, rows * ldc));
    }
    free(a - GUARD);
    free(b - GUARD);
    free(c - GUARD);
    free(start);
}

Test(matmul, are_the_products_right_at_every_size)
{
    const matmul_kernel *list[3];
    const int64_t sizes[] = {1, 2, 3, 5, 6, 7, 8, 12, 15, 16, 17, 31, 33, 63, 64, 65, 70, 128};
    const int64_t depths[] = {1, 2, 3, 4, 5, 63, 64, 255, 256, 257, 1000};
    for (int k = kernels(list) - 1; k >= 0; k--)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (size_t j = 0; j < sizeof depths / sizeof *depths; j++) {
                check_products(list[k], sizes[i], sizes[(i * 7 + j) % 18], depths[j]);
                check_products(list[k], 9, sizes[i], depths[j]);
            }
}

Test(matmul, is_the_row_maximum_right_and_blind_to_nan)
{
    const matmul_kernel *list[3];
    float x[200];
    for (int k = kernels(list) - 1; k >= 0; k--)
        for (int64_t n = 1; n < 200; n += n < 70 ? 1 : 17)
            for (int64_t at = 0; at < n; at += n < 20 ? 1 : 7) {
                fill(x, n, -3);
                x[at] = 5;
                if (n > 1) x[(at + 1) % n] = NAN;
                cr_expect_eq(list[k]->row_max(x, n), 5);
                fill(x, n, -INFINITY);
                cr_expect_eq(list[k]->row_max(x, n), -INFINITY);
                x[at] = NAN;
                cr_expect_eq(list[k]->row_max(x, n), -INFINITY);
                x[at] = INFINITY;
                cr_expect_eq(list[k]->row_max(x, n), INFINITY);
            }
}

Test(matmul, is_the_exponential_within_two_units_in_the_last_place)
{
    const matmul_kernel *list[3];
    float x[16], y[16];
    for (int k = kernels(list) - 1; k >= 0; k--)
        for (double start = -86.5; start < 88.7; start += 0.011) {
            for (int e = 0; e < 16; e++) x[e] = (float)(start + e * 0.00061);
            list[k]->row_exp_sum(y, x, 0, 16);
            for (int e = 0; e < 16; e++) {
                const double exact = exp((double)x[e]), ulp = exp2(floor(log2(exact)) - 23);
                cr_assert_leq(fabs((double)y[e] - exact), 2 * ulp, "%s exp(%.9g)",
                              list[k]->instruction_set, (double)x[e]);
            }
        }
}

Test(matmul, are_the_special_values_of_the_exponential_right)
{
    const matmul_kernel *list[3];
    for (int k = kernels(list) - 1; k >= 0; k--)
        for (int64_t n = 1; n <= 40; n++) {
            float x[40], y[41];
            y[n] = 9;
            fill(x, n, 2.5f);
            cr_expect_eq(list[k]->row_exp_sum(y, x, 2.5f, n), (float)n); // exp(0) is exactly 1
            for (int64_t i = 0; i < n; i++) cr_expect_eq(y[i], 1);
            cr_expect_eq(y[n], 9);
            x[n - 1] = -INFINITY;
            cr_expect_eq(list[k]->row_exp_sum(x, x, 2.5f, n), (float)(n - 1)); // in place
            cr_expect_eq(x[n - 1], 0);
            x[n - 1] = -1000;
            list[k]->row_exp_sum(y, x, 0, n);
            cr_expect_eq(y[n - 1], 0);
            x[n - 1] = NAN;
            cr_expect(isnan(list[k]->row_exp_sum(y, x, 0, n)) && isnan(y[n - 1]));
            x[n - 1] = 89.5f;
            list[k]->row_exp_sum(y, x, 0, n);
            cr_expect_eq(y[n - 1], INFINITY);
            x[n - 1] = INFINITY;
            cr_expect(isnan(list[k]->row_exp_sum(y, x, INFINITY, n)));
        }
}

Test(matmul, is_the_measured_peak_a_plausible_rate)
{
    const double peak = matmul_peak_flops();
    cr_expect(peak > 1e8 && peak < 1e13, "%g", peak);
}

// ---- options.h --------------------------------------------------------------------------------

Test(options, are_integers_parsed_whole)
{
    const char *const bad[] = {"",
                               " 5",
                               "5 ",
                               "+5",
                               "-5",
                               "12abc",
                               "0x10",
                               "1e3",
                               "5.0",
                               "9223372036854775808",
                               "18446744073709551616",
                               "--5",
                               "-",
                               "\t1",
                               "٣"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t value = 42;
        cr_expect_not(parse_integer(bad[i], 0, INT64_MAX, &value), "'%s'", bad[i]);
        cr_expect_eq(value, 42);
    }
    int64_t value;
    cr_expect(parse_integer("9223372036854775807", 0, INT64_MAX, &value) && value == INT64_MAX);
    cr_expect(parse_integer("-3", -5, 5, &value) && value == -3);
    cr_expect(parse_integer("007", 0, 9, &value) && value == 7);
    cr_expect_not(parse_integer("6", 1, 5, &value));
    cr_expect_not(parse_integer("0", 1, 5, &value));
}

Test(options, are_reals_parsed_whole_and_finite)
{
    const char *const bad[] = {"",    " 1",   "1 ",   "1e400", "-1e400", "nan",
                               "inf", "-inf", "1.5x", "1,5",   "e5",     "."};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double value = 42;
        cr_expect_not(parse_real(bad[i], &value), "'%s'", bad[i]);
        cr_expect_eq(value, 42);
    }
    double value;
    cr_expect(parse_real("-0.5", &value) && value == -0.5);
    cr_expect(parse_real(".25", &value) && value == 0.25);
    cr_expect(parse_real("1e-3", &value) && value == 1e-3);
}

// ---- timing.h ---------------------------------------------------------------------------------

static int run_count;

static int count_runs(void *context)
{
    run_count++;
    return run_count == *(int *)context;
}

Test(timing, does_it_call_as_often_as_it_says_and_stop_at_a_failure)
{
    timing_result r;
    int never = -1, third = 3;
    cr_expect_eq(timing_measure(&r, count_runs, &never, 2, 5), 0);
    cr_expect_eq(run_count, 1 + 2 + 5);
    cr_expect_eq(r.repeats, 5);
    cr_expect(r.min <= r.median && r.median <= r.max && r.min >= 0);
    run_count = 0;
    cr_expect_eq(timing_measure(&r, count_runs, &third, 2, 5), 1);
    cr_expect_eq(run_count, 3);
}

// ---- the oracle -------------------------------------------------------------------------------

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
                if (!in_lse) cr_expect_eq(r.first_failed, 77 * 16 + 5);
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

// ---- the diffs between stages are a product ---------------------------------------------------

static int changed_lines(const char *before, const char *after)
{
    char command[512];
    int lines = -1;
    snprintf(command, sizeof command,
             "strip() { sed -E 's@[ \t]*//.*@@; /^[ \t]*$/d' \"$1\"; }; strip %s >/tmp/diff-a.$$; "
             "strip %s >/tmp/diff-b.$$; diff /tmp/diff-a.$$ /tmp/diff-b.$$ | grep -c '^[<>]'; "
             "rm -f /tmp/diff-a.$$ /tmp/diff-b.$$",
             before, after);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    cr_assert_eq(fscanf(pipe, "%d", &lines), 1);
    pclose(pipe);
    return lines;
}

static const char *const stage_files[] = {"stage0_explicit/attention.c",
                                          "stage1_online_softmax/attention.c",
                                          "stage2_tiled_cpu/attention.c"};

Test(diffs, does_each_stage_stay_within_its_budget_of_changed_lines)
{
    const int first = changed_lines(stage_files[0], stage_files[1]);
    const int second = changed_lines(stage_files[1], stage_files[2]);
    cr_expect(first > 0 && first <= 70, "%d", first);
    cr_expect(second > 0 && second <= 90, "%d", second);
    char line[128], text[1 << 14]; // the main README's table says how many
    snprintf(line, sizeof line, "| %d |", first);
    FILE *readme = fopen("README.md", "r");
    cr_assert_not_null(readme);
    text[fread(text, 1, sizeof text - 1, readme)] = '\0';
    fclose(readme);
    cr_expect(strstr(text, line), "README.md does not say %d changed lines", first);
    snprintf(line, sizeof line, "| %d |", second);
    cr_expect(strstr(text, line), "README.md does not say %d changed lines", second);
}

Test(diffs, does_every_stage_carry_the_four_landmarks_in_order)
{
    const char *const landmarks[] = {"// 1. scores", "// 2. ", "// 3. output, not yet normalised",
                                     "// 4. normalise once"};
    for (int s = 0; s < 3; s++) {
        char text[1 << 14];
        FILE *file = fopen(stage_files[s], "r");
        cr_assert_not_null(file);
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        const char *at = text;
        for (int i = 0; i < 4; i++) {
            at = strstr(at, landmarks[i]);
            cr_assert_not_null(at, "%s: %s", stage_files[s], landmarks[i]);
        }
    }
}

Test(diffs, is_attention_forward_the_only_symbol_a_stage_exports)
{
    for (int s = 0; s < 3; s++) {
        char command[256], name[64] = "", more[64] = "", expected[64];
        snprintf(command, sizeof command,
                 "nm -g --defined-only build/$(cat build/config)/%.*s.o | awk '{print $3}' | grep "
                 "-v '^__odr_asan\\|^__asan'",
                 (int)strlen(stage_files[s]) - 2, stage_files[s]);
        FILE *pipe = popen(command, "r");
        cr_assert_not_null(pipe);
        cr_assert_eq(fscanf(pipe, "%63s", name), 1);
        cr_expect_eq(fscanf(pipe, "%63s", more), EOF, "%s", more);
        pclose(pipe);
        snprintf(expected, sizeof expected, "attention_forward_stage%d", s);
        cr_expect_str_eq(name, expected);
    }
}
