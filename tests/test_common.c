// What the stages stand on: types, random numbers, tensors, products, options, tables, timing.
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <float.h>
#include <math.h>

#include "golden.h"
#include "matmul.h"
#include "matmul_kernel.h"
#include "options.h"
#include "report.h"
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
        const uint32_t even = bits % 2 ? bits + 1 : bits;
        cr_expect_eq(bf16_from_float(middle), even);
        cr_expect_eq(bf16_from_float(nextafterf(middle, 0)), bits);
        cr_expect_eq(bf16_from_float(nextafterf(middle, INFINITY)), bits + 1);
        cr_expect_eq(bf16_from_float(-middle), even | 0x8000);
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
    cr_expect_eq(bf16_from_float(0x1.fefffep127f), 0x7f7f);
    cr_expect_eq(bf16_from_float(0x1p-133f), 1); // its smallest, a subnormal
    cr_expect_eq(fp16_from_float(1e30f), 0x7c00);
    cr_expect_eq(fp16_from_float(0x1.ffcp-15f), 0x3ff + 1); // up into the normal numbers
    cr_expect_eq((double)dtype_round(0.1f, DTYPE_FP32), (double)0.1f);
    cr_expect(isnan(dtype_round(NAN, DTYPE_FP16)) && isnan(dtype_round(NAN, DTYPE_BF16)));
    cr_expect_eq((double)dtype_round((float)dtype_max(DTYPE_BF16), DTYPE_BF16),
                 dtype_max(DTYPE_BF16));
    cr_expect_eq((double)fp16_to_float(0x7bff), dtype_max(DTYPE_FP16));
}

// A NaN whose payload lies only in the bits that are cut off must not become infinity.
Test(half, does_a_nan_with_a_low_payload_stay_nan)
{
    for (int sign = 0; sign < 2; sign++)
        for (uint32_t payload = 1; payload < 1u << 23; payload = payload * 3 + 1) {
            const uint32_t bits = (uint32_t)sign << 31 | 0x7f800000 | payload;
            float x;
            memcpy(&x, &bits, sizeof x);
            cr_expect(isnan(fp16_to_float(fp16_from_float(x))), "%08x", bits);
            cr_expect(isnan(bf16_to_float(bf16_from_float(x))), "%08x", bits);
        }
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

// A last group that is short draws 16 new uniforms, after all the others.
Test(random, are_the_last_sixteen_of_a_ragged_tensor_drawn_anew)
{
    for (int64_t count = 17; count < 64; count += count == 31 ? 2 : 7) {
        random_stream r;
        float x[64], expected[16];
        random_seed(&r, 3);
        for (int64_t i = 0; i < count; i++) random_word(&r);
        random_normal(&r, expected, 16);
        random_seed(&r, 3);
        random_normal(&r, x, count);
        cr_expect_arr_eq(x + count - 16, expected, sizeof expected, "%" PRId64, count);
    }
}

// With one key O is V: rows of the golden file with N = 1 hold PyTorch's own draws of v, which
// come after those of q and k.
Test(random, are_the_draws_those_of_pytorch)
{
    FILE *file = golden_open();
    golden_row g;
    int rows = 0;
    while (golden_next(file, &g)) {
        if (g.seq != 1 || g.dtype != DTYPE_FP32) continue;
        problem p = golden_problem(&g);
        for (int s = 0; s < GOLDEN_SAMPLES; s++)
            cr_expect_float_eq((double)p.v[g.index[s]], g.value[s], 5e-7, "%s", g.line);
        problem_free(&p);
        rows++;
    }
    fclose(file);
    cr_expect_geq(rows, 2);
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
    random_normal(&r, c, rows * ldc);
    start = copy_of(c, rows * ldc);
    for (int64_t i = 0; i < size; i++) // what is not part of a or b must not matter
        if (i % lda >= depth || i / lda >= rows) a[i] = NAN;
    for (int transposed = 0; transposed < 2; transposed++) {
        if (transposed && depth > 256) continue;
        random_normal(&r, b, size);
        memcpy(c, start, (size_t)(rows * ldc) * sizeof *c);
        for (int64_t i = 0; i < size; i++)
            if (i % ldb >= (transposed ? depth : cols) || i / ldb >= (transposed ? cols : depth))
                b[i] = NAN;
        if (transposed)
            kernel->abt(c, ldc, a, lda, b, ldb, rows, cols, depth, 0.5f);
        else
            kernel->ab(c, ldc, a, lda, b, ldb, rows, cols, depth);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < ldc; j++) {
                double sum = 0;
                for (int64_t t = 0; t < depth && j < cols; t++)
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

// Operands that end where the readable memory ends, in leading dimensions larger than they are.
Test(matmul, is_nothing_read_or_written_beyond_the_operands)
{
    const matmul_kernel *list[3];
    const int64_t sizes[] = {1, 3, 4, 5, 15, 17, 33, 63, 65};
    for (int k = kernels(list) - 1; k >= 0; k--)
        for (int i = 0; i < 9; i++)
            for (int j = 0; j < 9; j++)
                for (int transposed = 0; transposed < 2; transposed++) {
                    const int64_t rows = sizes[(i + j) % 9], cols = sizes[i], depth = sizes[j];
                    const int64_t width = transposed ? depth : cols, ld = 70;
                    const int64_t size_a = (rows - 1) * ld + depth, size_c = (rows - 1) * ld + cols;
                    const int64_t size_b = ((transposed ? cols : depth) - 1) * ld + width;
                    float *a = walled(size_a), *b = walled(size_b), *c = walled(size_c);
                    fill(a, size_a, 1);
                    fill(b, size_b, 1);
                    if (transposed)
                        list[k]->abt(c, ld, a, ld, b, ld, rows, cols, depth, 1);
                    else
                        list[k]->ab(c, ld, a, ld, b, ld, rows, cols, depth);
                    cr_expect_eq(c[size_c - 1], (float)depth);
                    list[k]->row_max(c, size_c);
                    list[k]->row_exp_sum(a, a, 0, size_a);
                    walled_free(a, size_a);
                    walled_free(b, size_b);
                    walled_free(c, size_c);
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

// 16 partial sums keep a sum of n terms within about n / 16 roundings.
Test(matmul, is_the_sum_of_exponentials_kept_in_partial_sums)
{
    const matmul_kernel *list[3];
    static float x[2100], y[2100];
    random_stream r;
    random_seed(&r, 2);
    random_normal(&r, x, 2100);
    for (int k = kernels(list) - 1; k >= 0; k--)
        for (int64_t n = 1; n <= 2100; n += n < 40 ? 1 : 103) {
            const float base = 3.75f;
            const double sum = (double)list[k]->row_exp_sum(y, x, base, n);
            double of_y = 0, exact = 0;
            for (int64_t i = 0; i < n; i++) {
                of_y += (double)y[i];
                exact += exp((double)(x[i] - base));
            }
            cr_expect_leq(fabs(sum - of_y), 4 * 0x1p-24 * of_y, "%" PRId64, n);
            cr_expect_leq(fabs(sum - exact), 5 * 0x1p-24 * exact, "%" PRId64, n);
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
    const char *const bad[] = {"",     " 1",   "1 ",   "1e400", "-1e400", "nan",  "inf",
                               "-inf", "1.5x", "1,5",  "e5",    ".",      "+1",   "1e",
                               "0x",   "--1",  "0x10", "0x1p3", "3.5e38", "-1e39"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double value = 42;
        cr_expect_not(parse_real(bad[i], &value), "'%s'", bad[i]);
        cr_expect_eq(value, 42);
    }
    double value;
    cr_expect(parse_real("-0.5", &value) && value == -0.5);
    cr_expect(parse_real(".25", &value) && value == 0.25);
    cr_expect(parse_real("1e-3", &value) && value == 1e-3);
    cr_expect(parse_real("-3.4028234663852886e38", &value) && value == (double)-FLT_MAX);
}

Test(options, does_a_table_take_what_fits_and_name_what_does_not)
{
    static const char *const shades[] = {"light", "dark", NULL};
    int64_t size;
    double weight;
    const char *name;
    int shade;
    bool loud, size_given;
    const option table[] = {
        {"size", "N", "", OPTION_INTEGER, &size, 1, 9, NULL, &size_given},
        {"weight", "X", "", OPTION_REAL, &weight, 0, 0, NULL, NULL},
        {"name", "S", "", OPTION_TEXT, &name, 0, 0, NULL, NULL},
        {"shade", "S", "", OPTION_CHOICE, &shade, 0, 0, shades, NULL},
        {"loud", NULL, "", OPTION_FLAG, &loud, 0, 0, NULL, NULL},
    };
    const struct {
        char *words[6];
        const char *complaint; // NULL: taken
    } lines[] = {
        {{"--size", "3", "--shade=dark", "--loud"}, NULL},
        {{"--size=9", "--weight", "-.5", "--name", "x"}, NULL},
        {{0}, NULL},
        {{"--size", "0"}, "--size '0' is not a whole number from 1 to 9"},
        {{"--size="}, "--size ''"},
        {{"--size"}, "--size needs a value"},
        {{"--weight", "heavy"}, "--weight 'heavy' is not a finite"},
        {{"--name", ""}, "--name has an empty value"},
        {{"--shade", "grey"}, "--shade 'grey' is not one of light, dark"},
        {{"--s", "1"}, "'--s' is not an option"}, // size or shade?
        {{"--loud=1"}, "--loud takes no value"},
        {{"--load"}, "'--load' is not an option"},
        {{"extra"}, "'extra' is not an option"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char *argv[8] = {"program"};
        int argc = 1;
        while (argc < 7 && lines[i].words[argc - 1]) {
            argv[argc] = lines[i].words[argc - 1];
            argc++;
        }
        size = shade = 0;
        weight = 0;
        loud = size_given = false;
        const attention_status status = options_parse(table, 5, argc, argv);
        cr_expect_eq(status, lines[i].complaint ? ATTENTION_BAD_ARGUMENT : ATTENTION_OK, "line %zu",
                     i);
        if (lines[i].complaint)
            cr_expect(strstr(status_message(), lines[i].complaint), "%s", status_message());
        if (i == 0) cr_expect(size == 3 && size_given && shade == 1 && loud);
        if (i == 1) cr_expect(size == 9 && weight == -0.5 && strcmp(name, "x") == 0 && !loud);
        if (i == 2) cr_expect(!size_given);
    }
}

// ---- report.h ---------------------------------------------------------------------------------

Test(report, are_columns_as_wide_as_they_must_be, .init = cr_redirect_stdout)
{
    const char *const headings[] = {"name", "time", "x"};
    table *t = table_new(3, headings);
    table_cell(t, "%s", "a");
    table_cell(t, "%.1f", 12345.67);
    table_cell(t, "%d", 1);
    table_cell(t, "%s", "longer"); // the rest of this row is missing
    table_print(t);
    fflush(stdout);
    cr_expect_stdout_eq_str("  name       time  x\n"
                            "  ------------------\n"
                            "  a       12345.7  1\n"
                            "  longer            \n");
}

Test(report, does_a_long_table_keep_all_its_cells)
{
    const char *const headings[] = {"i", "square"};
    char *text = NULL;
    size_t size;
    table *t = table_new(2, headings);
    for (int i = 0; i < 200; i++) {
        table_cell(t, "%d", i);
        table_cell(t, "%d", i * i);
    }
    FILE *stream = open_memstream(&text, &size);
    table_write_csv(t, stream);
    fclose(stream);
    table_free(t);
    char *at = text;
    cr_assert_eq(strncmp(at, "i,square\n", 9), 0);
    at += 9;
    for (int i = 0; i < 200; i++) {
        int a, b, length;
        cr_assert_eq(sscanf(at, "%d,%d%n", &a, &b, &length), 2);
        cr_expect(a == i && b == i * i);
        cr_assert_eq(at[length], '\n');
        at += length + 1;
    }
    cr_expect_eq(*at, '\0');
    free(text);
}

Test(report, does_a_failed_verdict_decide_the_exit_code, .init = cr_redirect_stdout)
{
    report_verdict(true, "%d of %d", 3, 3);
    cr_expect_eq(report_exit_code(), 0);
    report_verdict(false, "%d of %d", 2, 3);
    report_verdict(true, "later ones do not heal it");
    cr_expect_eq(report_exit_code(), 1);
    fflush(stdout);
    cr_expect_stdout_eq_str("  ok: 3 of 3\n"
                            "  FAILED: 2 of 3\n"
                            "  ok: later ones do not heal it\n");
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

// Each call spins for a set time and notes how long it really took.
static double noted[8];

static int spin(void *context)
{
    const int *milliseconds = context;
    const double start = timing_now();
    while (timing_now() - start < 1e-3 * milliseconds[run_count]) {
    }
    noted[run_count++] = timing_now() - start;
    return 0;
}

static double middle_of(const double *x, int count) // the mean of the two in the middle
{
    double sorted[8], t;
    memcpy(sorted, x, (size_t)count * sizeof *x);
    for (int i = 0; i < count; i++)
        for (int j = i + 1; j < count; j++)
            if (sorted[j] < sorted[i]) t = sorted[i], sorted[i] = sorted[j], sorted[j] = t;
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

Test(timing, is_the_median_that_of_the_calls_after_warm_up)
{
    for (int repeats = 5; repeats <= 6; repeats++) {
        int milliseconds[] = {130, 110, 2, 150, 60, 3, 4, 5};
        timing_result r;
        run_count = 0;
        cr_expect_eq(timing_measure(&r, spin, milliseconds, 1, repeats), 0);
        const double median = middle_of(noted + 2, repeats), slack = 0.02;
        cr_expect(r.median >= median && r.median <= median + slack, "%g, not %g", r.median, median);
        cr_expect(r.first >= 0.130 && r.first <= noted[0] + slack);
        cr_expect(r.min >= 2e-3 && r.max >= 150e-3 && r.min <= r.median && r.median <= r.max);
        cr_expect_eq(r.repeats, repeats);
    }
}
