// receipts.c: R1 to R4b. The article's experiments on four rows of 2048 logits, drawn as PyTorch
// would draw randn(4, 2048) * 8 from seed 0.
#include "receipts.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "half.h"
#include "matmul.h"
#include "online_softmax.h"
#include "random.h"
#include "report.h"
#include "walkthrough.h"

enum { ROWS = 4, N = 2048, COUNT = ROWS * N, BLOCK = 64 };

static const double unit = 0x1p-24; // the spacing of floats just below 1, halved

static void draw_logits(float x[ROWS][N])
{
    random_stream stream;
    random_seed(&stream, 0);
    random_normal(&stream, x[0], COUNT);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < N; i++) x[r][i] *= 8;
}

// Softmax in float64, in two passes over the row.
static void exact_softmax(double p[N], const float x[N])
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < N; i++) max = fmax(max, (double)x[i]);
    for (int i = 0; i < N; i++) sum += exp((double)x[i] - max);
    for (int i = 0; i < N; i++) p[i] = exp((double)x[i] - max) / sum;
}

// The larger of two errors, or NaN if either is: fmax would drop it, and a bound would pass.
static double worse(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : fmax(a, b);
}

static double largest_error(const float p[N], const double exact[N])
{
    double most = 0;
    for (int i = 0; i < N; i++) most = worse(most, fabs((double)p[i] - exact[i]));
    return most;
}

static void walk(void)
{
    const float logits[] = {0.4F, 0.9F, 0.5F, 1.8F, 0.6F, 0.7F};
    report_heading("R1  the rebase, step by step (Exact, section 2)");
    const attention_status status = walkthrough_print(logits, 6, 2, 4);
    if (status != ATTENTION_OK) report_verdict(false, "%s", status_message());
}

typedef struct {
    table *t;
    int raised;
} rescales;

static void count_rescale(void *context, const online_step *step, const float *terms)
{
    rescales *r = context;
    (void)terms;
    if (step->block == 0 || !(step->m_new > step->m_old)) return;
    r->raised++;
    table_cell(r->t, "%" PRId64, step->block);
    table_cell(r->t, "%.3f", (double)step->m_old);
    table_cell(r->t, "%.3f", (double)step->m_new);
    table_cell(r->t, "%.3f", (double)step->correction);
}

static void how_often(const float *x)
{
    const char *const headings[] = {"block", "m_old", "m_new", "correction"};
    float p[N];
    rescales r = {table_new(4, headings), 0};
    report_heading("R2  how often a block raises the maximum: one row of 2048, blocks of 64");
    online_softmax(p, x, N, BLOCK, count_rescale, &r);
    table_print(r.t);
    const int after_first = N / BLOCK - 1;
    printf("  %d blocks; of the %d after the first, %d raise the maximum and %d do not\n",
           N / BLOCK, after_first, r.raised, after_first - r.raised);
}

// The same sum in one fp32 variable, term after term, instead of 16 partial sums.
static void single_sum_softmax(float p[N], const float x[N])
{
    float l = 0;
    const float m = row_max(x, N);
    row_exp_sum(p, x, m, N);
    for (int i = 0; i < N; i++) l += p[i];
    for (int i = 0; i < N; i++) p[i] /= l;
}

static void against_two_passes(float x[ROWS][N])
{
    static const int blocks[] = {64, 128, 512, 2048};
    static double exact[ROWS][N];
    float p[N];
    double range = 0, largest = 0, worst = 0;
    for (int r = 0; r < ROWS; r++) {
        float negated[N];
        for (int i = 0; i < N; i++) negated[i] = -x[r][i];
        range = fmax(range, (double)row_max(x[r], N) + (double)row_max(negated, N));
        exact_softmax(exact[r], x[r]);
        for (int i = 0; i < N; i++) largest = fmax(largest, exact[r][i]);
    }
    report_heading("R3  online against two passes in float64: 4 rows of 2048 (Exact, section 3)");
    printf("  row range (max - min)  %.1f\n  largest probability    %.4f\n\n", range, largest);

    const char *const headings[] = {"block", "max error", "in 2^-24", "rows sum to"};
    table *t = table_new(4, headings);
    for (int b = 0; b < 5; b++) { // the fifth is the single sum
        double error = 0, furthest = 1;
        for (int r = 0; r < ROWS; r++) {
            if (b < 4)
                online_softmax(p, x[r], N, blocks[b], NULL, NULL);
            else
                single_sum_softmax(p, x[r]);
            double sum = 0;
            for (int i = 0; i < N; i++) sum += (double)p[i];
            if (isnan(sum) || fabs(sum - 1) >= fabs(furthest - 1)) furthest = sum;
            error = worse(error, largest_error(p, exact[r]));
        }
        if (b < 4) worst = worse(worst, error);
        if (b < 4)
            table_cell(t, "%d", blocks[b]);
        else
            table_cell(t, "2048, one fp32 sum");
        table_cell(t, "%.3e", error);
        table_cell(t, "%.1f", error / unit);
        table_cell(t, "%.4f", furthest);
    }
    table_print(t);
    report_verdict(worst <= 4 * unit, "at most 4 units of 2^-24 at every block size");
    puts("  The last row adds 2048 terms into one variable; the others keep 16 partial\n"
         "  sums, so that no sum is long. A single sum loses more than streaming does.");
}

// exp(x) / sum exp(x) as PyTorch computes it in the type: each result rounded, the sum kept in
// fp32.
static void unshifted(float x[ROWS][N], attention_dtype dtype, int *inf, int *nan, double *error)
{
    float p[N];
    double exact[N];
    *inf = *nan = 0;
    *error = 0;
    for (int r = 0; r < ROWS; r++) {
        float sums[16] = {0}, sum = 0, rounded[N];
        for (int i = 0; i < N; i++) rounded[i] = dtype_round(x[r][i], dtype);
        for (int i = 0; i < N; i++) {
            p[i] = dtype_round(expf(rounded[i]), dtype);
            *inf += isinf(p[i]) != 0;
            sums[i % 16] += p[i];
        }
        for (int i = 0; i < 16; i++) sum += sums[i];
        sum = dtype_round(sum, dtype);
        for (int i = 0; i < N; i++) {
            p[i] = dtype_round(p[i] / sum, dtype);
            *nan += isnan(p[i]) != 0;
        }
        exact_softmax(exact, rounded);
        *error = worse(*error, largest_error(p, exact));
    }
}

static void keep_last(void *context, const online_step *step, const float *terms)
{
    (void)terms;
    *(online_step *)context = *step;
}

// The same numbers through the online softmax: terms and results rounded to the type; m and l stay
// in fp32, as in the fused kernels.
static void shifted(float x[ROWS][N], attention_dtype dtype, int *bad, double *error)
{
    double exact[N];
    *bad = 0;
    *error = 0;
    for (int r = 0; r < ROWS; r++) {
        float p[N], rounded[N];
        online_step last;
        for (int i = 0; i < N; i++) rounded[i] = dtype_round(x[r][i], dtype);
        online_softmax(p, rounded, N, BLOCK, keep_last, &last);
        row_exp_sum(p, rounded, last.m_new, N);
        for (int i = 0; i < N; i++) {
            p[i] = dtype_round(dtype_round(p[i], dtype) / last.l_after, dtype);
            *bad += !isfinite(p[i]);
        }
        exact_softmax(exact, rounded);
        *error = worse(*error, largest_error(p, exact));
    }
}

static void what_the_max_is_for(float x[ROWS][N])
{
    const char *const headings[] = {"softmax", "exp overflows past", "row max", "bad values",
                                    "max error"};
    const attention_dtype types[] = {DTYPE_FP32, DTYPE_FP16};
    const double row_most = (double)row_max(x[0], COUNT);
    int inf[2], nan[2], bad;
    double error;
    report_heading("R4  what the maximum is for: the same rows (Exact, section 3)");
    table *t = table_new(5, headings);
    for (int i = 0; i < 2; i++) {
        unshifted(x, types[i], &inf[i], &nan[i], &error);
        table_cell(t, "%s, nothing subtracted", dtype_name(types[i]));
        table_cell(t, "%.1f", log(dtype_max(types[i])));
        table_cell(t, "%.1f", row_most);
        const int all = inf[i] + nan[i];
        if (all >= 1000)
            table_cell(t, "%d,%03d", all / 1000, all % 1000);
        else
            table_cell(t, "%d", all);
        if (isnan(error))
            table_cell(t, "nan");
        else
            table_cell(t, "%.1e", error);
    }
    shifted(x, DTYPE_FP16, &bad, &error);
    table_cell(t, "fp16, online");
    table_cell(t, "never: x - m <= 0");
    table_cell(t, "%.1f", row_most);
    table_cell(t, "%d", bad);
    table_cell(t, "%.1e", error);
    table_print(t);
    printf("  fp16: %d inf in exp, %d nan in the quotient\n", inf[1], nan[1]);
    report_verdict(bad == 0, "the online softmax has no bad value in fp16");
}

static void one_price(void)
{
    const char *const headings[] = {"terms held", "multiplies", "l_old x correction", "recomputed",
                                    "relative difference"};
    const int64_t counts[] = {2, (int64_t)1 << 20};
    double worst = 0;
    report_heading("R4b  one multiply, however many terms (Exact, section 2)");
    table *t = table_new(5, headings);
    for (int c = 0; c < 2; c++) {
        const int64_t n = counts[c];
        float *x = malloc(2 * (size_t)n * sizeof *x);
        if (!x) {
            report_verdict(false, "no memory for %" PRId64 " terms", n);
            break;
        }
        random_stream stream;
        random_seed(&stream, 0);
        random_normal(&stream, x, n);
        const float m_old = row_max(x, n), m_new = m_old + 0.9F;
        const double rebased = (double)(row_exp_sum(x + n, x, m_old, n) * expf(m_old - m_new));
        const double recomputed = (double)row_exp_sum(x + n, x, m_new, n);
        const double difference = fabs(rebased - recomputed) / recomputed;
        table_cell(t, "%" PRId64, n);
        table_cell(t, "1");
        table_cell(t, "%.6g", rebased);
        table_cell(t, "%.6g", recomputed);
        table_cell(t, "%.1e", difference);
        worst = worse(worst, difference);
        free(x);
    }
    table_print(t);
    report_verdict(worst <= 1e-5, "the same sum up to rounding");
}

attention_status write_rescale_csv(const char *path, int64_t block)
{
    float x[ROWS][N];
    draw_logits(x);
    return walkthrough_rescale_csv(path, x[0], N, block > 0 ? block : BLOCK);
}

void print_receipts(const stage *stage, int threads)
{
    (void)stage;
    float x[ROWS][N];
    (void)threads; // one row at a time
    draw_logits(x);
    walk();
    how_often(x[0]);
    against_two_passes(x);
    what_the_max_is_for(x);
    one_price();
}
