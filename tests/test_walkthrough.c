// Stage 1's own: the softmax of a row, the list of logits, the walkthrough, R1 to R4b.
#include <math.h>

#include "logits.h"
#include "online_softmax.h"
#include "process.h"
#include "support.h"
#include "util.h"

#define RUN "stage1_online_softmax/run"

static float softmax(const float *x, int64_t n, int64_t block, float *p)
{
    return online_softmax(p, x, n, block, NULL, NULL);
}

// ---- the softmax of a row ---------------------------------------------------------------------

// [1] Eight -inf, then 1 and 2.
Test(online_softmax, is_a_leading_run_of_minus_infinity_harmless_at_every_block_size)
{
    float x[10], p[10];
    fill(x, 8, -INFINITY);
    x[8] = 1;
    x[9] = 2;
    for (int64_t block = 1; block <= 11; block++) {
        const float lse = softmax(x, 10, block, p);
        for (int i = 0; i < 8; i++) cr_expect_eq(p[i], 0);
        cr_expect_float_eq(p[8], 0.26894f, 1e-5f);
        cr_expect_float_eq(p[9], 0.73106f, 1e-5f);
        cr_expect_float_eq(lse, 2.31326f, 1e-5f);
    }
}

// [2] Nothing but -inf.
Test(online_softmax, is_a_row_of_minus_infinity_zero)
{
    float x[5], p[5];
    fill(x, 5, -INFINITY);
    for (int64_t n = 1; n <= 5; n += 4)
        for (int64_t block = 1; block <= 6; block++) {
            cr_expect_eq(softmax(x, n, block, p), -INFINITY);
            for (int i = 0; i < n; i++) cr_expect_eq(p[i], 0);
        }
}

// [4] NaN, and the same at every block size.
Test(online_softmax, is_plus_infinity_nan_at_every_block_size)
{
    const float rows[][2] = {
        {0, INFINITY}, {INFINITY, 0}, {INFINITY, INFINITY}, {0, NAN}, {NAN, -INFINITY}};
    for (int r = 0; r < 5; r++)
        for (int64_t block = 1; block <= 3; block++) {
            float p[2];
            cr_expect(isnan(softmax(rows[r], 2, block, p)));
            cr_expect(isnan(p[0]) && isnan(p[1]), "row %d block %d", r, (int)block);
        }
}

// [6] The running maximum. [12] The natural logarithm.
Test(online_softmax, does_the_maximum_run_and_is_lse_natural)
{
    const float rows[][4] = {{200, -200}, {-200, 200}, {-200, 200, -200, -200}};
    const int n[] = {2, 2, 4};
    for (int r = 0; r < 3; r++)
        for (int64_t block = 1; block <= 4; block++) {
            float p[4];
            cr_expect_float_eq(softmax(rows[r], n[r], block, p), 200, 1e-4f);
            for (int i = 0; i < n[r]; i++) cr_expect_eq(p[i], rows[r][i] > 0);
        }
    const float zeros[2] = {0, 0};
    float p[2];
    cr_expect_float_eq(softmax(zeros, 2, 1, p), 0.693147f, 1e-6f);
}

// ---- the list ---------------------------------------------------------------------------------

Test(logits, is_every_allowed_spelling_taken)
{
    const struct {
        const char *text;
        int count;
        float last;
    } good[] = {{"1", 1, 1},
                {"0.4,0.9", 2, 0.9f},
                {"0.4 0.9", 2, 0.9f},
                {" 1 , 2 ", 2, 2},
                {"1,2,", 2, 2},
                {"1\r\n2\r\n", 2, 2},
                {"1\t2\n\n", 2, 2},
                {"-1e-3", 1, -1e-3f},
                {"+5", 1, 5},
                {".5", 1, 0.5f},
                {"5.", 1, 5},
                {"inf", 1, INFINITY},
                {"1 -INF", 2, -INFINITY},
                {"-0", 1, 0},
                {"1e-50", 1, 0},
                {"1 2 3,", 3, 3}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        float *x;
        int64_t n;
        cr_assert_eq(logits_parse(good[i].text, strlen(good[i].text), &x, &n), ATTENTION_OK,
                     "'%s': %s", good[i].text, status_message());
        cr_expect_eq(n, good[i].count);
        cr_expect_eq(x[n - 1], good[i].last);
        tensor_free(x);
    }
    float *x;
    int64_t n;
    cr_assert_eq(logits_parse("NaN", 3, &x, &n), ATTENTION_OK);
    cr_expect(isnan(x[0]));
    tensor_free(x);
}

Test(logits, may_a_number_have_many_digits)
{
    char text[301] = "0.";
    float *x;
    int64_t n;
    memset(text + 2, '1', 298);
    text[300] = '\0';
    cr_assert_eq(logits_parse(text, 300, &x, &n), ATTENTION_OK, "%s", status_message());
    cr_expect_float_eq(x[0], 1.0f / 9, 1e-7f);
    tensor_free(x);
}

Test(logits, is_everything_else_refused_with_its_position)
{
    const char *const bad[][2] = {{"", "empty"},
                                  {" \n", "empty"},
                                  {",", "character 1"},
                                  {"1,,2", "character 3"},
                                  {"1, ,2", "character 4"},
                                  {",1", "character 1"},
                                  {"1 2x", "character 3: '2x'"},
                                  {"1;2", "character 1"},
                                  {"0x10", "character 1"},
                                  {"1 infinity", "character 3"},
                                  {"nan(1)", "character 1"},
                                  {"1e400", "beyond fp32"},
                                  {"1e39", "beyond fp32"},
                                  {"--1", "character 1"},
                                  {"1e", "character 1"},
                                  {"-", "character 1"},
                                  {"1.2.3", "character 1"},
                                  {"\xef\xbb\xbf"
                                   "1",
                                   "character 1"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        float *x = (float *)1;
        int64_t n;
        cr_expect_eq(logits_parse(bad[i][0], strlen(bad[i][0]), &x, &n), ATTENTION_BAD_ARGUMENT,
                     "'%s'", bad[i][0]);
        cr_expect(strstr(status_message(), bad[i][1]), "'%s': %s", bad[i][0], status_message());
        cr_expect_null(x);
    }
    float *x;
    int64_t n;
    cr_expect_eq(logits_parse("1\0002", 3, &x, &n), ATTENTION_BAD_ARGUMENT); // a NUL byte
    char longer[200];
    memset(longer, '1', sizeof longer);
    cr_expect_eq(logits_parse(longer, sizeof longer, &x, &n), ATTENTION_BAD_ARGUMENT);
    cr_expect_lt(strlen(status_message()), 100);
}

Test(logits, does_the_program_read_an_argument_and_standard_input_alike)
{
    const char *const words[] = {RUN, "--logits", "0.4 0.9,0.5\r\n1.8", NULL}, *const dash[] = {
                                                                                   RUN, "--logits",
                                                                                   "-", NULL};
    process *a = process_run_list(words, (process_options){0});
    process *b = process_run_list(dash, (process_options){.input = "0.4,0.9\n0.5 1.8,\n"});
    cr_expect_eq(a->exit_code, 0, "%s", a->error);
    cr_expect_str_eq(a->out, b->out);
    free(a);
    free(b);
    b = process_run_list(dash, (process_options){.input = "1 two 3"});
    cr_expect_eq(b->exit_code, 2);
    cr_expect_str_eq(b->error, RUN ": logits, character 3: 'two' is not a number\n");
    cr_expect_eq(b->out[0], '\0');
    free(b);
}

Test(logits, are_options_that_do_not_go_together_refused)
{
    const char *const bad[] = {"--logits 1 --check",
                               "--logits 1 --seq 5",
                               "--digits 3",
                               "--trace-csv x.csv",
                               "--logits 1 --rescale-csv /tmp/x.csv",
                               "--logits 1 --digits 0",
                               "--logits 1 --digits 10",
                               "--logits 1 --block 0",
                               "--logits ''",
                               "--logits 1 --trace-csv /nonexistent/x.csv",
                               "--rescale-csv /nonexistent/x.csv"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        process *p = process_run(RUN " %s", bad[i]);
        cr_expect_eq(p->exit_code, 2, "%s: %d", bad[i], p->exit_code);
        cr_expect_eq(count_lines(p->error), 1, "%s: %s", bad[i], p->error);
        cr_expect_eq(p->out[0], '\0', "%s: %s", bad[i], p->out);
        free(p);
    }
}

// ---- the walkthrough --------------------------------------------------------------------------

static const char *const r1[] = {"block 0   m = 0.9,",
                                 "exp(0.4 - 0.9) + exp(0.9 - 0.9)",
                                 "= 0.6065 + 1.0000\n    = 1.6065\n",
                                 "block 1   m: 0.9 -> 1.8, correction = exp(0.9 - 1.8) = 0.4066",
                                 "l = 1.6065 x 0.4066 + exp(0.5 - 1.8) + exp(1.8 - 1.8)\n    = "
                                 "0.6532 + 0.2725 + 1.0000\n    = 1.9257\n",
                                 "block 2   m: 1.8 -> 1.8, correction = exp(1.8 - 1.8) = 1.0000",
                                 "l = 1.9257 x 1.0000 + exp(0.6 - 1.8) + exp(0.7 - 1.8)\n    = "
                                 "1.9257 + 0.3012 + 0.3329\n    = 2.5598\n"};

static void expect_in_order(const char *text, const char *const *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *at = strstr(text, parts[i]);
        cr_assert_not_null(at, "'%s' is missing, or out of order", parts[i]);
        text = at + strlen(parts[i]);
    }
}

Test(walkthrough, does_r1_print_to_the_digit)
{
    const char *bar = "[000000|000000000|1111111|11111111111111111111111|2222222|22222222]\n";
    const char *const words[] = {RUN, "--logits", "0.4 0.9 0.5 1.8 0.6 0.7", "--block", "2", NULL};
    process *p = process_run_list(words, (process_options){0});
    cr_expect_eq(p->exit_code, 0);
    expect_in_order(p->out, r1, sizeof r1 / sizeof *r1);
    expect_in_order(p->out,
                    (const char *const[]){"one multiply for 2 held terms", "0.6532", "0.6532",
                                          "difference", "0.0000", "one pass, 3 blocks", "2.5598",
                                          "2.5598", "0.0000", bar,
                                          "log of the sum of exp(x) = 2.7399\n",
                                          "softmax = 0.0963 0.1588 0.1065 0.3907 0.1177 0.1300\n"},
                    12);
    cr_expect_null(strstr(p->out, "["
                                  "digits"),
                   "R1's digits add up, so no residual is marked");
    free(p);
}

// Adds up every "= a + b + c" line as printed and compares with the "= total" below; a difference
// must be marked, and nothing else may be; rounding explains half a unit a number, not more.
static int check_sums(const char *out, int digits)
{
    int steps = 0;
    const double half = 0.5 * pow(10, -digits);
    for (const char *line = out; (line = strstr(line, "\n  l = ")); line++) {
        const char *values = strstr(line, "\n    = ") + 7, *total = strstr(values, "\n    = ") + 7;
        cr_assert(values > (char *)7 && total > (char *)7);
        double sum = 0, printed, marked;
        const char *at = values;
        int numbers = 1; // the total
        for (;;) {
            char *end;
            sum += strtod(at, &end);
            numbers++;
            at = strstr(end, "+ ");
            if (!at || at > total) break;
            at += 2;
        }
        cr_assert_eq(sscanf(total, "%lf", &printed), 1);
        cr_expect_leq(fabs(sum - printed), numbers * half + 1e-5, "%.200s", line);
        const char *mark = strstr(total, "[digits add to "), *line_end = strchr(total, '\n');
        if (mark && mark < line_end) {
            cr_assert_eq(sscanf(mark, "[digits add to %lf", &marked), 1);
            cr_expect_float_eq(marked, sum, 1e-9);
            cr_expect(fabs(sum - printed) > 1e-9, "marked without need");
        } else {
            cr_expect_float_eq(sum, printed, 1e-9, "%.60s", line);
        }
        steps++;
    }
    return steps;
}

// Whether a result that prints as `printed` carries its mark exactly when the digits around it
// give another one, `value`; half a unit either way may round up or down.
static void expect_mark(const char *line, const char *mark, double value, double printed,
                        int digits)
{
    const double unit = pow(10, -digits), off = fabs(value - printed) / unit;
    const char *at = strstr(line, mark);
    double marked;
    if (at) {
        cr_assert_eq(sscanf(at + strlen(mark), "%lf", &marked), 1, "%s", line);
        cr_expect_gt(off, 0.499, "marked without need: %s", line);
        cr_expect_leq(fabs(marked - value) / unit, 0.501, "%s", line);
    } else {
        cr_expect_lt(off, 0.501, "not marked: %s", line);
    }
}

// Multiplies out every "l x correction" as printed and compares with the first number below it.
static int check_products(const char *out, int digits)
{
    int products = 0;
    for (const char *line = out; (line = strstr(line, "\n  l = ")); line++) {
        double before, correction, rebased;
        if (sscanf(line, " l = %lf x %lf", &before, &correction) != 2) continue;
        const char *values = strstr(line, "\n    = "), *end = strstr(values, "\n\n");
        char step[4096];
        snprintf(step, sizeof step, "%.*s", (int)(end - line), line);
        cr_assert_eq(sscanf(values, " = %lf", &rebased), 1);
        expect_mark(step, "[digits multiply to ", before * correction, rebased, digits);
        products++;
    }
    return products;
}

// Subtracts the two numbers above every "difference".
static int check_differences(const char *out, int digits)
{
    int differences = 0;
    const char *above[2] = {out, out};
    for (const char *line = out; line && *line; differences++) {
        double a, b, printed;
        char text[128];
        while (line && strncmp(line, "  difference ", 13) != 0) {
            above[0] = above[1];
            above[1] = line;
            line = strchr(line, '\n');
            line = line ? line + 1 : NULL;
        }
        if (!line) break;
        cr_assert_eq(sscanf(above[0] + 38, "%lf", &a) + sscanf(above[1] + 38, "%lf", &b), 2);
        cr_assert_eq(sscanf(line + 13, "%lf", &printed), 1);
        snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
        expect_mark(text, "[digits give ", fabs(a - b), printed, digits);
        line++;
    }
    return differences;
}

Test(walkthrough, do_the_printed_digits_add_up_or_say_that_they_do_not)
{
    random_stream r;
    random_seed(&r, 17);
    int marked = 0, multiplied = 0, subtracted = 0;
    for (int trial = 0; trial < 80; trial++) {
        char list[2048] = "", block[16], digits[16];
        float x[32];
        random_normal(&r, x, 32);
        const int n = 1 + trial % 30;
        for (int i = 0; i < n; i++)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%.3f ", (double)(3 * x[i]));
        snprintf(block, sizeof block, "%d", 1 + trial % 9);
        snprintf(digits, sizeof digits, "%d", 1 + trial % 8);
        const char *const words[] = {RUN,   "--logits", list,   "--block",
                                     block, "--digits", digits, NULL};
        process *p = process_run_list(words, (process_options){0});
        cr_assert_eq(p->exit_code, 0, "%s", p->error);
        cr_expect_gt(check_sums(p->out, 1 + trial % 8), 0);
        cr_expect(check_products(p->out, 1 + trial % 8) > 0 || n <= 1 + trial % 9);
        cr_expect_geq(check_differences(p->out, 1 + trial % 8), 1);
        cr_expect_leq(longest_line(p->out), 80, "%s", p->out);
        marked += strstr(p->out, "[digits add to") != NULL;
        multiplied += strstr(p->out, "[digits multiply to") != NULL;
        subtracted += strstr(p->out, "[digits give") != NULL;
        cr_expect_eq(strstr(p->out, "[digits") != NULL,
                     strstr(p->out, "every number is rounded by itself") != NULL);
        free(p);
    }
    cr_expect(marked > 5 && multiplied > 5 && subtracted > 0, "%d %d %d: the test has not tested",
              marked, multiplied, subtracted);
}

Test(walkthrough, do_long_rows_elide_and_keep_what_matters)
{
    char list[1 << 15] = "";
    for (int i = 0; i < 1000; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%d,", i == 777 ? 9 : i % 7);
    const char *const words[] = {RUN, "--logits", list, "--block", "20", NULL};
    process *p = process_run_list(words, (process_options){0});
    cr_expect_eq(p->exit_code, 0);
    expect_in_order(p->out,
                    (const char *const[]){"1000 logits", "block 0 ", "block 1 ", "block 2 ",
                                          "... 35 blocks that do not raise m",
                                          "block 38   m: 6 -> 9", "... 10 blocks", "block 49 ",
                                          "one multiply for 760 held terms, block 38",
                                          "one pass, 50 blocks"},
                    10);
    cr_expect(strstr(p->out, "(15 more)") && strstr(p->out, "(15 terms)"));
    cr_expect_null(strstr(p->out, "softmax ="));
    cr_expect_lt(count_lines(p->out), 80);
    cr_expect_leq(longest_line(p->out), 80);
    check_sums(p->out, 4);
    free(p);
}

Test(walkthrough, do_infinities_and_nan_print_as_words)
{
    const char *const rows[] = {"-inf -inf -inf", "inf 0",    "0 inf",
                                "nan 1",          "-inf nan", "-inf -inf 1 2"};
    for (int i = 0; i < 6; i++) {
        const char *const words[] = {RUN, "--logits", rows[i], "--block", "1", NULL};
        process *p = process_run_list(words, (process_options){0});
        cr_expect_eq(p->exit_code, 0);
        cr_expect_null(strstr(p->out, "-nan"));
        cr_expect_eq(strstr(p->out, "= nan") != NULL, i >= 1 && i <= 4, "%s", rows[i]);
        cr_expect_null(strstr(p->out, "digits"), "%s", p->out);
        free(p);
    }
}

// m stands still there, at a value whose correction is not always 1.
Test(walkthrough, does_the_line_for_blocks_left_out_say_their_correction)
{
    const char *const rows[][2] = {{"5 1 1 1 1 1 1", "3 blocks that do not raise m: correction 1,"},
                                   {"-inf -inf -inf -inf -inf -inf -inf", "raise m: correction 0,"},
                                   {"inf 1 1 1 1 1 1", "raise m: correction nan,"},
                                   {"-inf -inf -inf -inf 2 1 1", "1 block that does not raise m: "
                                                                 "correction 0,"}};
    for (int i = 0; i < 4; i++) {
        const char *const words[] = {RUN, "--logits", rows[i][0], "--block", "1", NULL};
        process *p = process_run_list(words, (process_options){0});
        cr_expect_eq(p->exit_code, 0);
        cr_expect(strstr(p->out, rows[i][1]), "%s: %s", rows[i][0], p->out);
        free(p);
    }
}

Test(walkthrough, does_the_largest_logit_print_with_all_its_digits)
{
    const char *const words[] = {RUN, "--logits", "-3.4028235e38", "--digits", "9", NULL};
    process *p = process_run_list(words, (process_options){0});
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    cr_expect(strstr(p->out, "= -340282346638528859811704183484516925440.000000000\n"), "%s",
              p->out);
    cr_expect_leq(longest_line(p->out), 80);
    free(p);
}

Test(walkthrough, do_round_logits_print_as_they_were_typed)
{
    const char *const words[] = {RUN, "--logits", "10,20,300", "--block", "1", NULL};
    process *p = process_run_list(words, (process_options){0});
    cr_expect(strstr(p->out, "m: 10 -> 20, correction = exp(10 - 20)"), "%s", p->out);
    cr_expect(strstr(p->out, "m: 20 -> 300,"), "%s", p->out);
    free(p);
}

// A row a term: enough to draw the stack block by block, which is what this does.
Test(walkthrough, can_the_stack_be_drawn_from_the_trace_csv)
{
    const char *folder = folder_new();
    char path[128], line[512];
    snprintf(path, sizeof path, "%s/t.csv", folder);
    const char *const words[] = {
        RUN, "--logits", "0.4 0.9 0.5 1.8 0.6 0.7 -inf", "--block", "2", "--trace-csv", path, NULL};
    process *p = process_run_list(words, (process_options){0});
    cr_assert_eq(p->exit_code, 0, "%s", p->error);
    free(p);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    cr_assert_not_null(fgets(line, sizeof line, file));
    cr_expect_str_eq(line,
                     "block,index,logit,m_old,m_new,correction,l_before,l_rebased,term,l_after\n");
    double held[16], l_after = 0, sum;
    int rows = 0, last_block = -1;
    while (fgets(line, sizeof line, file)) {
        int block, index;
        double logit, m_old, m_new, correction, before, rebased, term;
        cr_assert_eq(sscanf(line, "%d,%d,%lf,%lf,%lf,%lf,%lf,%lf,%lf,%lf", &block, &index, &logit,
                            &m_old, &m_new, &correction, &before, &rebased, &term, &l_after),
                     10, "%s", line);
        cr_expect_eq(index, rows);
        if (block != last_block) // the rebase of everything held
            for (int i = 0; i < rows; i++) held[i] *= correction;
        sum = 0;
        for (int i = 0; i < rows && block != last_block; i++) sum += held[i];
        if (block != last_block) cr_expect_float_eq(sum, rebased, 1e-6);
        cr_expect_float_eq(before * correction, rebased, 1e-6);
        cr_expect_float_eq(term, exp(logit - m_new), 1e-6);
        held[rows++] = term;
        last_block = block;
    }
    fclose(file);
    cr_expect_eq(rows, 7);
    sum = 0;
    for (int i = 0; i < rows; i++) sum += held[i];
    cr_expect_float_eq(sum, l_after, 1e-6);
    cr_expect_eq(folder_entries(folder), 1);
    folder_remove(folder);
}

Test(walkthrough, does_the_rescale_csv_hold_r2)
{
    const char *folder = folder_new();
    char line[256], path[128];
    process *p = process_run(RUN " --rescale-csv %s/r.csv", folder);
    cr_assert_eq(p->exit_code, 0, "%s", p->error);
    free(p);
    snprintf(path, sizeof path, "%s/r.csv", folder);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    cr_assert_not_null(fgets(line, sizeof line, file));
    cr_expect_str_eq(line, "block,block_max,m_old,m_new,correction,raised\n");
    int rows = 0, raised = 0;
    double deepest = 1;
    while (fgets(line, sizeof line, file)) {
        int block, flag;
        double block_max, m_old, m_new, correction;
        cr_assert_eq(sscanf(line, "%d,%lf,%lf,%lf,%lf,%d", &block, &block_max, &m_old, &m_new,
                            &correction, &flag),
                     6);
        cr_expect_eq(block, rows);
        cr_expect_eq(m_new, fmax(m_old, block_max));
        if (rows > 0) cr_expect_eq(flag, m_new > m_old);
        if (flag) cr_expect(block == 5 || block == 6);
        if (rows > 0) deepest = fmin(deepest, correction);
        raised += flag;
        rows++;
    }
    fclose(file);
    cr_expect_eq(rows, 32);
    cr_expect_eq(raised, 2);
    cr_expect_float_eq(deepest, 0.016, 5e-4);
    folder_remove(folder);
}

Test(walkthrough, does_the_rescale_csv_take_another_block_size)
{
    const char *folder = folder_new();
    char path[128], line[256];
    int rows = -1; // the header
    process *p = process_run(RUN " --rescale-csv %s/r.csv --block 512", folder);
    cr_assert_eq(p->exit_code, 0, "%s", p->error);
    free(p);
    snprintf(path, sizeof path, "%s/r.csv", folder);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    while (fgets(line, sizeof line, file)) rows++;
    fclose(file);
    cr_expect_eq(rows, 4);
    folder_remove(folder);
}

// ---- the receipts -----------------------------------------------------------------------------

Test(receipts1, do_r1_to_r4b_print_their_figures)
{
    process *p = process_run(RUN);
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    cr_expect_leq(longest_line(p->out), 80);
    expect_in_order(p->out, r1, sizeof r1 / sizeof *r1);
    expect_in_order(p->out,
                    (const char *const[]){
                        "R2 ",
                        "\n  5 ",
                        "0.016",
                        "\n  6 ",
                        "0.254",
                        "32 blocks; of the 31 after the first, 2 raise the maximum and 29 do not",
                        "R3 ",
                        "58.0",
                        "0.7605",
                        "at most 4 units",
                        "R4 ",
                        "88.7     32.8           0 ",
                        "11.1     32.8       1,320        nan",
                        "fp16, online",
                        "fp16: 660 inf in exp, 660 nan in the quotient",
                        "ok",
                        "R4b ",
                        "\n  2 ",
                        "\n  1048576 ",
                        "ok"},
                    20);
    cr_expect_null(strstr(p->out, "FAILED"));

    // R3's rows: error within 4 units, and the single sum the loser at about 11
    const char *at = strstr(p->out, "rows sum to\n");
    cr_assert_not_null(at);
    at = strstr(at, "\n  64 ");
    for (int row = 0; row < 5; row++) {
        char name[32];
        double error, in_units, sum;
        at = strchr(at, '\n') + 1;
        cr_assert_eq(sscanf(at, row < 4 ? " %31[0-9] %lf %lf %lf" : " %31[^3]32 sum %lf %lf %lf",
                            name, &error, &in_units, &sum),
                     4, "%.60s", at);
        cr_expect_float_eq(error * 0x1p24, in_units, 0.06);
        cr_expect_gt(in_units, 0.1); // fp32 is never exact: 0 means that NaN got lost
        if (row < 4)
            cr_expect_leq(in_units, 4);
        else
            cr_expect_float_eq(in_units, 11, 1);
        cr_expect_eq(sum, 1.0000);
    }
    free(p);
}
