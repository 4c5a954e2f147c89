// golden.h: the rows of tests/attention_f64.csv: PyTorch's attention in float64 on inputs drawn
// by torch.randn and rounded to the row's type (q and k times amp before that).
#ifndef GOLDEN_H
#define GOLDEN_H

#include "support.h"

enum { GOLDEN_ROWS = 128, GOLDEN_SAMPLES = 8 };

typedef struct {
    char line[1024]; // as it stands in the file, for messages
    uint32_t seed;
    int64_t batch, heads, seq, head_dim;
    attention_dtype dtype;
    bool causal;
    double amp, sum, abs_sum, abs_max;
    int64_t index[GOLDEN_SAMPLES]; // flat, into o
    double value[GOLDEN_SAMPLES];
} golden_row;

// The next number of a comma-separated line; *at moves behind its comma.
static inline double golden_number(char **at)
{
    char *end;
    const double value = strtod(*at, &end);
    cr_assert(end != *at && (*end == ',' || *end == '\n' || *end == '\0'), "'%s'", *at);
    *at = end + (*end == ',');
    return value;
}

static inline FILE *golden_open(void)
{
    char header[1024];
    FILE *file = fopen("tests/attention_f64.csv", "r");
    cr_assert_not_null(file, "run from the repository root");
    cr_assert_not_null(fgets(header, sizeof header, file));
    cr_assert_eq(strncmp(header, "seed,B,H,N,D,dtype,causal,amp,sum,abs_sum,abs_max,i0,o0,", 56),
                 0);
    return file;
}

// False at the end of the file.
static inline bool golden_next(FILE *file, golden_row *row)
{
    if (!fgets(row->line, sizeof row->line, file)) return false;
    char *at = row->line;
    row->seed = (uint32_t)golden_number(&at);
    row->batch = (int64_t)golden_number(&at);
    row->heads = (int64_t)golden_number(&at);
    row->seq = (int64_t)golden_number(&at);
    row->head_dim = (int64_t)golden_number(&at);
    int dtype = 2;
    while (dtype >= 0 && strncmp(at, dtype_name((attention_dtype)dtype), 4) != 0) dtype--;
    cr_assert_geq(dtype, 0, "%s", row->line);
    row->dtype = (attention_dtype)dtype;
    at += 5;
    row->causal = golden_number(&at) != 0;
    row->amp = golden_number(&at);
    row->sum = golden_number(&at);
    row->abs_sum = golden_number(&at);
    row->abs_max = golden_number(&at);
    for (int s = 0; s < GOLDEN_SAMPLES; s++) {
        row->index[s] = (int64_t)golden_number(&at);
        row->value[s] = golden_number(&at);
    }
    return true;
}

// The row's shape with its inputs drawn.
static inline problem golden_problem(const golden_row *row)
{
    problem p = problem_new(row->batch, row->heads, row->seq, row->head_dim);
    p.args.dtype = row->dtype;
    p.args.causal = row->causal;
    problem_draw(&p, row->seed, (float)row->amp);
    return p;
}

// The oracle's row that holds o[flat].
static inline oracle_row golden_exact(const problem *p, int64_t flat)
{
    oracle_row exact;
    const int64_t row = flat / p->args.head_dim, seq = p->args.seq;
    double *scratch = malloc((size_t)seq * sizeof *scratch);
    cr_assert_not_null(scratch);
    oracle_compute_row(&exact, scratch, p->q, p->k, p->v, &p->args, row / seq, row % seq);
    free(scratch);
    return exact;
}

#endif
