// checker.c: the half of the grader that knows what is right. No submission is linked in.
//     checker draw  --dir DIR OPTIONS    writes q.npy, k.npy and v.npy
//     checker judge --dir DIR OPTIONS    judges o.npy, lse.npy and steps.csv beside them
// `judge` prints one line; it exits with 0 if all is right, 1 if not, 2 for what cannot be read.
// The options are those of case.h. Attention is judged by common/oracle.h.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "half.h"
#include "npy.h"
#include "oracle.h"
#include "random.h"
#include "tensor.h"
#include "util.h"

static const char *const names[] = {"q.npy", "k.npy", "v.npy", "o.npy", "lse.npy"};

// Gives rows first .. end - 1 of every head of x [heads, seq, head_dim] this value in column 0.
static void set_column(float *x, const attention_args *a, int64_t first, int64_t end, float value)
{
    for (int64_t bh = 0; bh < a->batch * a->heads; bh++)
        for (int64_t r = first; r < end; r++) x[(bh * a->seq + r) * a->head_dim] = value;
}

static void shape_inputs(const graded_case *c, float *q, float *k, float *v)
{
    const attention_args *a = &c->args;
    const int64_t n = a->seq, d = a->head_dim, rows = a->batch * a->heads * n;
    if (c->inputs != INPUTS_NORMAL && c->inputs != INPUTS_LAST_NAN &&
        c->inputs != INPUTS_UPPER_HALF)
        set_column(q, a, 0, n, 1);
    switch ((case_inputs)c->inputs) {
    case INPUTS_NORMAL: break;
    case INPUTS_RISING:
    case INPUTS_FALLING:
        for (int64_t j = 0; j < n; j++) {
            const float rising = 0.5f * (float)(j % 512);
            set_column(k, a, j, j + 1, c->inputs == INPUTS_RISING ? rising : -30000 - rising);
        }
        break;
    case INPUTS_NEEDLE: set_column(k, a, n - 1, n, 200); break;
    case INPUTS_EQUAL:
        memset(q, 0, (size_t)(rows * d) * sizeof *q);
        memset(k, 0, (size_t)(rows * d) * sizeof *k);
        for (int64_t i = 0; i < rows * d; i++) v[i] = (float)(i / d % n % 2048);
        break;
    case INPUTS_MASKED: set_column(k, a, 0, n / 2, -INFINITY); break;
    case INPUTS_ALL_MASKED: set_column(k, a, 0, n, -INFINITY); break;
    case INPUTS_INFINITE: set_column(k, a, n / 3, n / 3 + 1, INFINITY); break;
    case INPUTS_LAST_NAN:
        set_column(k, a, n - 1, n, NAN);
        set_column(v, a, n - 1, n, NAN);
        break;
    case INPUTS_UPPER_HALF:
        for (int64_t i = 0; i < rows * d; i++)
            if (i % d < d / 2) q[i] = k[i] = 0;
        break;
    }
}

static attention_status draw(const graded_case *c)
{
    const attention_args *a = &c->args;
    const int64_t shape[4] = {a->batch, a->heads, a->seq, a->head_dim};
    char path[PATH_TEXT];
    float *tensors[3] = {0};
    int64_t count;
    attention_status status = tensor_count("q", shape[0], shape[1], shape[2], shape[3], &count);
    random_stream stream;
    random_seed(&stream, (uint32_t)c->seed);
    for (int t = 0; t < 3 && status == ATTENTION_OK; t++) {
        status = tensor_new(names[t], shape[0], shape[1], shape[2], shape[3], &tensors[t]);
        if (status != ATTENTION_OK) break;
        random_normal(&stream, tensors[t], count);
        const float amp = (float)(t < 2 ? c->amp : c->v_amp);
        for (int64_t i = 0; i < count; i++) tensors[t][i] *= amp;
    }
    if (status == ATTENTION_OK && !c->logits) shape_inputs(c, tensors[0], tensors[1], tensors[2]);
    for (int t = 0; t < 3 && status == ATTENTION_OK; t++) {
        for (int64_t i = 0; i < count; i++) tensors[t][i] = dtype_round(tensors[t][i], a->dtype);
        status = npy_write(case_path(c, names[t], path), tensors[t], 4, shape, DTYPE_FP32);
    }
    for (int t = 0; t < 3; t++) tensor_free(tensors[t]);
    return status;
}

static bool near(double x, double exact, double bound)
{
    return x == exact || (isnan(x) && isnan(exact)) || fabs(x - exact) <= bound;
}

// The softmax of the row q, and the log of its sum of exponentials.
static bool judge_logits(const graded_case *c, const float *q, const float *o, const float *lse)
{
    const int64_t n = c->args.seq;
    double m = -INFINITY, l = 0;
    for (int64_t i = 0; i < n; i++) m = fmax(m, (double)q[i]);
    for (int64_t i = 0; i < n; i++) l += exp((double)q[i] - m);
    for (int64_t i = 0; i < n; i++) {
        const double exact = exp((double)q[i] - m) / l;
        if (near((double)o[i], exact, 2e-6)) continue;
        printf("logit %" PRId64 " of %" PRId64 ": %g where %g is right\n", i, n, (double)o[i],
               exact);
        return false;
    }
    if (near((double)*lse, m + log(l), 2e-6 * fmax(1, fabs(m)))) return true;
    printf("log of the sum of exp: %g where %g is right\n", (double)*lse, m + log(l));
    return false;
}

static bool judge_attention(const graded_case *c, float *const t[5])
{
    attention_args a = c->args;
    if (c->rows && c->rows < a.seq) a.seq = c->rows; // under causality no later key is seen
    oracle_report r;
    if (oracle_check(&r, t[0], t[1], t[2], t[3], t[4], &a) != ATTENTION_OK) {
        puts(status_message());
        return false;
    }
    if (r.failed == 0) return true;
    const int64_t row = r.first_failed / a.head_dim, x = r.first_failed % a.head_dim;
    oracle_row exact;
    double *scratch = malloc((size_t)a.seq * sizeof *scratch);
    if (!scratch) return puts("no memory"), false;
    oracle_compute_row(&exact, scratch, t[0], t[1], t[2], &a, row / a.seq, row % a.seq);
    free(scratch);
    const double got = (double)t[3][r.first_failed];
    if (!near(got, exact.o[x], exact.bound[x]))
        printf("%" PRId64 " wrong; first head %" PRId64 ", row %" PRId64 ", column %" PRId64
               ": %g where %g is right\n",
               r.failed, row / a.seq, row % a.seq, x, got, exact.o[x]);
    else
        printf("lse of head %" PRId64 ", row %" PRId64 ": %g where %g is right\n", row / a.seq,
               row % a.seq, (double)t[4][row], exact.lse);
    return false;
}

// What the first `count` keys of the traced row come to: the largest score, and the sum of
// exp(score - m).
static void prefix(const graded_case *c, const float *q, const float *k, int64_t count, double *m,
                   double *l)
{
    const attention_args *a = &c->args;
    const int64_t d = a->head_dim, bh = c->trace / a->seq, i = c->trace % a->seq;
    *m = -INFINITY;
    *l = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t j = 0; j < count; j++) {
            double score = 0;
            for (int64_t x = 0; x < d; x++)
                score += (double)q[c->trace * d + x] * (double)k[(bh * a->seq + j) * d + x];
            score = a->causal && j > i ? -INFINITY : score * (double)a->scale;
            if (pass == 0) *m = fmax(*m, score);
            if (pass == 1) *l += *m == -INFINITY ? 0 : exp(score - *m);
        }
}

// Queries of the tile that query i is in end here, and so do the keys they may see.
static int64_t keys_seen(const attention_args *a, int64_t i)
{
    return a->causal ? min64(a->seq, (i / a->block_q + 1) * a->block_q) : a->seq;
}

static bool judge_steps(const graded_case *c, const float *q, const float *k)
{
    const attention_args *a = &c->args;
    const bool seen = c->tiles == CASE_TILES_SEEN;
    const int64_t n = a->seq;
    int64_t tiles = 0, due = 0;
    char path[PATH_TEXT];
    FILE *file = fopen(case_path(c, "steps.csv", path), "re");
    if (!file || fscanf(file, "%" SCNd64, &tiles) != 1) {
        if (file) fclose(file);
        puts("no steps were written");
        return false;
    }
    for (int64_t i = 0; i < n; i += a->block_q)
        due += a->batch * a->heads * (((seen ? keys_seen(a, i) : n) - 1) / a->block_k + 1);
    bool right = c->tiles == CASE_TILES_ANY || tiles == due;
    if (!right) printf("%" PRId64 " tiles computed where %" PRId64 " are needed\n", tiles, due);
    const int64_t end = seen ? keys_seen(a, c->trace % n) : n;
    double m_old = -INFINITY;
    for (int64_t j = 0; right && c->trace >= 0 && j < end; j += a->block_k) {
        const int64_t keys = min64(a->block_k, n - j);
        int64_t first, count;
        double got[4], m, l;
        const int fields = fscanf(file, "%" SCNd64 ",%" SCNd64 ",%lf,%lf,%lf,%lf", &first, &count,
                                  &got[0], &got[1], &got[2], &got[3]);
        prefix(c, q, k, min64(n, j + keys), &m, &l);
        const double base = m == -INFINITY ? 0 : m, correction = exp(m_old - base);
        const double unit = 2e-5 * fmax(1, fabs(base));
        right = fields == 6 && first == j && count == keys && near(got[0], m_old, unit) &&
                near(got[1], m, unit) && near(got[2], correction, 2e-5 + unit * correction) &&
                near(got[3], l, 2e-5 * l + unit * l);
        if (fields != 6)
            printf("row %" PRId64 ": the step of key %" PRId64 " was not traced\n", c->trace, j);
        else if (!right)
            printf("row %" PRId64 ", step of key %" PRId64
                   ": m %g -> %g, correction %g, l %g where "
                   "m %g -> %g, correction %g, l %g are right\n",
                   c->trace, j, got[0], got[1], got[2], got[3], m_old, m, correction, l);
        m_old = m;
    }
    fclose(file);
    return right;
}

static attention_status judge(const graded_case *c, bool *right)
{
    const attention_args *a = &c->args;
    const int64_t rows = a->batch * a->heads * a->seq;
    char path[PATH_TEXT];
    float *tensors[5] = {0};
    attention_status status = ATTENTION_OK;
    for (int t = 0; t < 5 && status == ATTENTION_OK; t++) {
        npy_header header;
        status = npy_read(case_path(c, names[t], path), &header, &tensors[t]);
        if (status == ATTENTION_OK && header.count != (t == 4 ? rows : rows * a->head_dim))
            status = status_fail(ATTENTION_BAD_FILE, "%s: not of that shape", names[t]);
    }
    if (status == ATTENTION_OK)
        *right = c->logits ? judge_logits(c, tensors[0], tensors[3], tensors[4])
                           : judge_attention(c, tensors);
    if (status == ATTENTION_OK && *right && (c->trace >= 0 || c->tiles != CASE_TILES_ANY))
        *right = judge_steps(c, tensors[0], tensors[1]);
    for (int t = 0; t < 5; t++) tensor_free(tensors[t]);
    return status;
}

int main(int argc, char **argv)
{
    graded_case c;
    bool right = true;
    const bool drawing = argc > 1 && strcmp(argv[1], "draw") == 0;
    attention_status status = ATTENTION_OK;
    if (argc < 2 || (!drawing && strcmp(argv[1], "judge") != 0))
        status = status_fail(ATTENTION_BAD_ARGUMENT, "checker draw|judge --dir DIR OPTIONS");
    if (status == ATTENTION_OK) status = case_parse(&c, argc - 1, argv + 1);
    if (status == ATTENTION_OK) status = drawing ? draw(&c) : judge(&c, &right);
    if (status != ATTENTION_OK) fprintf(stderr, "%s\n", status_message());
    return status != ATTENTION_OK ? 2 : right ? 0 : 1;
}
