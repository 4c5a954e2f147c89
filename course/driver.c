// driver.c: the program a submission is linked into: tensors in, tensors out, no judgement.
//
// It is given what a case says (case.h), reads dir/q.npy, k.npy and v.npy, calls the submission and
// writes o.npy, lse.npy and steps.csv: the tally of tiles and, with --trace, the row's steps. The
// grader runs it in a sandbox and believes nothing but those files. Neither the oracle nor another
// stage is linked in.
// Build: the grader's Makefile rule; FORWARD and TRACED name the entry points.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "case.h"
#include "npy.h"
#include "output_file.h"
#include "stages.h"
#include "tensor.h"
#ifdef WITH_LOGITS
#include "online_softmax.h"
#endif

static attention_status run_attention(const graded_case *c, float *const tensors[3], float *o,
                                      float *lse, rebase_trace *trace, attention_counters *counters)
{
    attention_args args = c->args;
    const bool listen = c->trace >= 0 || c->tiles != CASE_TILES_ANY;
    if (listen) args.counters = counters;
    if (c->trace >= 0) args.trace = trace;
    attention_function *forward = listen ? TRACED : FORWARD;
    return forward(tensors[0], tensors[1], tensors[2], o, lse, &args);
}

static attention_status run_logits(const graded_case *c, const float *x, float *p, float *lse)
{
#ifdef WITH_LOGITS
    *lse = online_softmax(p, x, c->args.seq, c->args.block_k, NULL, NULL);
    return ATTENTION_OK;
#else
    (void)c, (void)x, (void)p, (void)lse;
    return status_fail(ATTENTION_BAD_ARGUMENT, "this stage takes no logits");
#endif
}

static attention_status write_steps(const graded_case *c, const rebase_trace *trace,
                                    const attention_counters *counters)
{
    char path[PATH_TEXT];
    output_file file;
    const attention_status status = output_file_open(&file, case_path(c, "steps.csv", path));
    if (status != ATTENTION_OK) return status;
    fprintf(file.stream, "%" PRId64 "\n", counters->tiles);
    for (int64_t i = 0; i < trace->count; i++) {
        const rebase_step *s = &trace->steps[i];
        fprintf(file.stream, "%" PRId64 ",%" PRId64 ",%.9g,%.9g,%.9g,%.9g\n", s->first_key, s->keys,
                (double)s->m_old, (double)s->m_new, (double)s->correction, (double)s->l);
    }
    return output_file_commit(&file);
}

static attention_status run(const graded_case *c)
{
    static const char *const names[] = {"q.npy", "k.npy", "v.npy"};
    const attention_args *a = &c->args;
    const int64_t shape[4] = {a->batch, a->heads, a->seq, a->head_dim};
    const int64_t rows = a->batch * a->heads * a->seq, count = rows * a->head_dim;
    char path[PATH_TEXT];
    float *tensors[3] = {0}, *o = NULL, *lse = NULL;
    attention_status status = ATTENTION_OK;
    for (int t = 0; t < (c->logits ? 1 : 3) && status == ATTENTION_OK; t++) {
        npy_header header;
        status = npy_read(case_path(c, names[t], path), &header, &tensors[t]);
        if (status == ATTENTION_OK && header.count != count)
            status = status_fail(ATTENTION_BAD_FILE, "%s: not of that shape", path);
    }
    if (status == ATTENTION_OK)
        status = tensor_new("o", shape[0], shape[1], shape[2], shape[3], &o);
    if (status == ATTENTION_OK) status = tensor_new("lse", shape[0], shape[1], shape[2], 1, &lse);
    if (status != ATTENTION_OK) return status;
    for (int64_t i = 0; i < count; i++) o[i] = NAN; // what nobody writes stays NaN
    for (int64_t i = 0; i < rows; i++) lse[i] = NAN;
    rebase_trace trace = {.row = c->trace, .capacity = (a->seq - 1) / a->block_k + 1};
    trace.steps = calloc((size_t)trace.capacity, sizeof *trace.steps);
    if (!trace.steps) return status_fail(ATTENTION_NO_MEMORY, "no memory for the trace");
    attention_counters counters = {0};

    status = c->logits ? run_logits(c, tensors[0], o, lse)
                       : run_attention(c, tensors, o, lse, &trace, &counters);
    if (status == ATTENTION_OK)
        status = npy_write(case_path(c, "o.npy", path), o, 4, shape, DTYPE_FP32);
    if (status == ATTENTION_OK)
        status = npy_write(case_path(c, "lse.npy", path), lse, 3, shape, DTYPE_FP32);
    if (status == ATTENTION_OK) status = write_steps(c, &trace, &counters);
    free(trace.steps);
    for (int t = 0; t < 3; t++) tensor_free(tensors[t]);
    tensor_free(o);
    tensor_free(lse);
    return status;
}

int main(int argc, char **argv)
{
    graded_case c;
    attention_status status = case_parse(&c, argc, argv);
    if (status == ATTENTION_OK) status = run(&c);
    if (status != ATTENTION_OK) fprintf(stderr, "%s\n", status_message());
    return status_exit_code(status);
}
