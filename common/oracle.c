#include "oracle.h"

#include <math.h>
#include <omp.h>

#include "half.h"
#include "tensor.h"
#include "util.h"

enum { ALL_ROWS_UP_TO = 2048, SAMPLED_ROWS = 512, SAMPLED_ROWS_OF_A_HEAD = 16 };

// Half the distance between neighbours of x in the type: the error of rounding x to it.
static double half_unit(double x, attention_dtype dtype)
{
    const double smallest = dtype == DTYPE_FP16 ? 0x1p-14 : 0x1p-126; // normal
    return dtype_unit_roundoff(dtype) * exp2(floor(log2(fmax(fabs(x), smallest))));
}

// All keys at once, one query at a time: every score, then their maximum, then every weight.
void oracle_compute_row(oracle_row *row, double *scratch, const float *q, const float *k,
                        const float *v, const attention_args *args, int64_t bh, int64_t i)
{
    const int64_t n = args->seq, d = args->head_dim, keys = args->causal ? i + 1 : n;
    const float *q_row = q + (bh * n + i) * d;
    double max = -INFINITY, sum = 0, largest_products = 0;
    for (int64_t j = 0; j < keys; j++) {
        const float *k_row = k + (bh * n + j) * d;
        double dot = 0, products = 0;
        for (int64_t x = 0; x < d; x++) {
            const double product = (double)q_row[x] * (double)k_row[x];
            dot += product;
            products += fabs(product);
        }
        scratch[j] = dot * (double)args->scale;
        max = fmax(max, scratch[j]);
        if (!isinf(products)) // a key at -inf weighs nothing, at +inf makes the row NaN
            largest_products = fmax(largest_products, products * fabs((double)args->scale));
    }
    double weighted_sizes[HEAD_DIM_MAX] = {0}, sizes[HEAD_DIM_MAX] = {0}; // sum of p|v|, of |v|
    for (int64_t x = 0; x < d; x++) row->o[x] = 0;
    for (int64_t j = 0; j < keys; j++) {
        const float *v_row = v + (bh * n + j) * d;
        const double p = exp(scratch[j] - (max == -INFINITY ? 0 : max));
        sum += p;
        for (int64_t x = 0; x < d; x++) {
            row->o[x] += p * (double)v_row[x];
            weighted_sizes[x] += p * fabs((double)v_row[x]);
            sizes[x] += fabs((double)v_row[x]);
        }
    }
    // fp32 slack. A score sums d products one by one; its roundings add up like a random walk, to
    // about sqrt(d) of the products' sizes, and an error of a score is a relative error of its
    // weight. A weight below 2^-125 may count as 0.
    const double slack = 0x1p-24 * (4 + fmax(2, sqrt((double)d)) * largest_products);
    for (int64_t x = 0; x < d; x++) {
        row->o[x] = sum == 0 ? 0 : row->o[x] / sum;
        const double weighted = sum == 0 ? 0 : weighted_sizes[x] / sum;
        row->bound[x] = half_unit(row->o[x], args->dtype) +
                        (dtype_unit_roundoff(args->dtype) + slack) * weighted + 0x1p-125 * sizes[x];
    }
    row->lse = max + log(sum);
}

static bool alike(double x, double exact)
{
    return isnan(exact) ? isnan(x) : x == exact;
}

typedef struct {
    double max_abs, sum_abs, max_ratio, rounding_sum, lse_max;
    int64_t finite, failed, first_failed;
} tally;

static void note_failed(tally *t, int64_t at)
{
    t->failed++;
    if (t->first_failed < 0 || at < t->first_failed) t->first_failed = at;
}

static void judge_row(tally *t, const oracle_row *exact, const float *o, const float *lse,
                      const attention_args *args, int64_t flat)
{
    const int64_t d = args->head_dim;
    for (int64_t x = 0; x < d; x++) {
        const double value = (double)o[flat * d + x];
        const double rounded = (double)dtype_round((float)exact->o[x], args->dtype);
        bool passed;
        if (!isfinite(rounded)) { // NaN, or beyond what the type can hold
            passed = alike(value, rounded);
            if (!passed) t->max_abs = t->max_ratio = INFINITY;
        } else {
            const double difference = fabs(value - exact->o[x]);
            const double error = isnan(difference) ? INFINITY : difference;
            passed = error <= exact->bound[x];
            t->max_abs = fmax(t->max_abs, error);
            t->max_ratio = fmax(t->max_ratio, error / exact->bound[x]);
            t->sum_abs += error;
            t->rounding_sum += fabs(rounded - exact->o[x]);
            t->finite++;
        }
        if (!passed) note_failed(t, flat * d + x);
    }
    if (!lse) return;
    const double value = (double)lse[flat];
    if (isfinite(exact->lse)) {
        const double error = fabs(value - exact->lse) / fmax(1, fabs(exact->lse));
        t->lse_max = fmax(t->lse_max, isnan(error) ? INFINITY : error);
        if (!(error <= 2e-6)) note_failed(t, flat * d);
    } else if (!alike(value, exact->lse)) {
        note_failed(t, flat * d);
    }
}

attention_status oracle_check(oracle_report *report, const float *q, const float *k, const float *v,
                              const float *o, const float *lse, const attention_args *args)
{
    const int64_t n = args->seq, planes = args->batch * args->heads;
    const int64_t share = max64(SAMPLED_ROWS_OF_A_HEAD, SAMPLED_ROWS / planes);
    const int64_t rows = n <= ALL_ROWS_UP_TO ? n : min64(n, share);
    const int threads = attention_threads(args);
    float *memory; // doubles, two floats each
    attention_status status = tensor_new("the oracle's rows", threads, 1, 2, n, &memory);
    if (status != ATTENTION_OK) return status;

    tally total = {.first_failed = -1};
#pragma omp parallel num_threads(threads)
    {
        tally mine = {.first_failed = -1};
        double *scratch = (double *)(void *)memory + omp_get_thread_num() * n;
#pragma omp for collapse(2) schedule(dynamic)
        for (int64_t bh = 0; bh < planes; bh++)
            for (int64_t r = 0; r < rows; r++) {
                // Sampled rows are spread from the first to the last.
                const int64_t i = rows == 1 ? n - 1 : r * (n - 1) / (rows - 1);
                oracle_row exact;
                oracle_compute_row(&exact, scratch, q, k, v, args, bh, i);
                judge_row(&mine, &exact, o, lse, args, bh * n + i);
            }
#pragma omp critical(oracle)
        {
            total.max_abs = fmax(total.max_abs, mine.max_abs);
            total.max_ratio = fmax(total.max_ratio, mine.max_ratio);
            total.lse_max = fmax(total.lse_max, mine.lse_max);
            total.sum_abs += mine.sum_abs;
            total.rounding_sum += mine.rounding_sum;
            total.finite += mine.finite;
            total.failed += mine.failed;
            if (mine.first_failed >= 0 &&
                (total.first_failed < 0 || mine.first_failed < total.first_failed))
                total.first_failed = mine.first_failed;
        }
    }
    tensor_free(memory);
    const double finite = (double)max64(1, total.finite);
    *report = (oracle_report){
        .rows_checked = rows * planes,
        .rows = n * planes,
        .failed = total.failed,
        .first_failed = total.first_failed,
        .max_abs = total.max_abs,
        .mean_abs = total.sum_abs / finite,
        .max_ratio = total.max_ratio,
        .rounding_mean_abs = total.rounding_sum / finite,
        .lse_max = total.lse_max,
    };
    return ATTENTION_OK;
}
