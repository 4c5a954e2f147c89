#include "cpu_methods.h"

#include <malloc.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WITH_OPENBLAS
#include <cblas.h>
#endif

#include "matmul.h"
#include "oracle.h"
#include "random.h"
#include "stages.h"
#include "tensor.h"
#include "timing.h"

#ifdef WITH_OPENBLAS
// Stage 0 with OpenBLAS for its products: S and P in memory, masked and softened row by row with
// stage 0's own vector exp, so that the products and the memory are what is compared.
static attention_status openblas_explicit(const float *q, const float *k, const float *v, float *o,
                                          float *lse, const attention_args *args)
{
    const int64_t n = args->seq, d = args->head_dim;
    const int threads = attention_threads(args), rows = (int)n, depth = (int)d;
    (void)lse;
    float *s;
    const attention_status status = tensor_new("S and P", 1, 2, n, n, &s);
    if (status != ATTENTION_OK) return status;
    float *p = s + n * n;
    openblas_set_num_threads(threads);
    for (int64_t bh = 0; bh < args->batch * args->heads; bh++) {
        const int64_t at = bh * n * d;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, rows, depth, args->scale, q + at,
                    depth, k + at, depth, 0.0f, s, rows);
#pragma omp parallel for num_threads(threads)
        for (int64_t i = 0; i < n; i++) {
            float *s_row = s + i * n, *p_row = p + i * n;
            for (int64_t j = i + 1; args->causal && j < n; j++) s_row[j] = -INFINITY;
            const float sum = row_exp_sum(p_row, s_row, row_max(s_row, n), n);
            for (int64_t j = 0; j < n; j++) p_row[j] /= sum;
        }
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, depth, rows, 1.0f, p, rows,
                    v + at, depth, 0.0f, o + at, depth);
    }
    tensor_free(s);
    return ATTENTION_OK;
}
#endif

// Stage 2 with large tiles: what a row costs a tile, and packing K for a tile of queries, whatever
// the tile's size, are paid less often. 5% faster than 128 x 128 at N = 512 and 1024.
const cpu_method cpu_methods[] = {
    {"cpu_stage0", "0", 128, 128, 0, attention_forward_stage0},
    {"cpu_stage1", "1", 1, 128, 2048, attention_forward_stage1},
    {"cpu_stage2", "2", 256, 512, 0, attention_forward_stage2},
#ifdef WITH_OPENBLAS
    {"cpu_openblas", "0", 0, 0, 0, openblas_explicit},
#endif
};
const int cpu_method_count = sizeof cpu_methods / sizeof *cpu_methods;

// The processor's name, without what a CSV field cannot hold.
static void processor_name(char name[ROW_TEXT])
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(name, ROW_TEXT, "CPU");
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        snprintf(name, ROW_TEXT, "%.63s", colon + 2);
        break;
    }
    if (file) fclose(file);
    for (char *c = name; *c; c++)
        if (*c == ',' || *c == '\n') *c = *c == ',' ? ';' : '\0';
}

// The best of a third of a second: a neighbour on the machine must not pass for a slow processor.
static double threads_peak_flops(int threads)
{
    double best = 0;
    for (int attempt = 0; attempt < 20; attempt++) {
        double sum = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
        sum += matmul_peak_flops();
        best = fmax(best, sum);
    }
    return best;
}

void cpu_bench_open(bench_row *common, int threads)
{
    const attention_args any = {.threads = threads};
    threads = attention_threads(&any);
    // As in stage_run_bench: memory that was freed stays with the process.
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT32_MAX);
    processor_name(common->device);
    snprintf(common->compute_capability, ROW_TEXT, "%s", matmul_instruction_set());
    snprintf(common->compiler, ROW_TEXT, "%s %d.%d",
#ifdef __clang__
             "clang", __clang_major__, __clang_minor__
#else
             "gcc", __GNUC__, __GNUC_MINOR__
#endif
    );
    snprintf(common->cache, ROW_TEXT, "warm");
    common->threads = threads;
    common->peak_tflops = 1e-12 * threads_peak_flops(threads);
    common->matmul_tflops = common->copy_gbs = NAN;
}

typedef struct {
    const cpu_method *method;
    attention_args args;
    float *q, *k, *v, *o;
    attention_status status;
} cpu_call;

static int call_once(void *context)
{
    cpu_call *c = context;
    c->status = c->method->forward(c->q, c->k, c->v, c->o, NULL, &c->args);
    return c->status != ATTENTION_OK;
}

static attention_status measure(cpu_call *c, bench_row *row)
{
    oracle_report r;
    timing_result first, time;
    const int64_t before = tensor_bytes();
    tensor_reset_peak();
    int failed = timing_measure(&first, call_once, c, 0, 1);
    if (failed) return c->status;
    row->peak_extra_mib = (double)(tensor_peak_bytes() - before) / 0x1p20;
    const attention_status status = oracle_check(&r, c->q, c->k, c->v, c->o, NULL, &c->args);
    if (status != ATTENTION_OK) return status;
    row->max_abs_err = r.max_abs;
    row->ms_first = 1e3 * first.first;
    if (r.failed) {
        snprintf(row->status, ROW_TEXT, "wrong");
        return ATTENTION_OK;
    }
    row->repeats = (int64_t)fmin(50, fmax(7, 1.0 / first.median));
    failed = timing_measure(&time, call_once, c, 1, (int)row->repeats);
    if (failed) return c->status;
    row->ms_median = 1e3 * time.median;
    row->ms_min = 1e3 * time.min;
    row->ms_max = 1e3 * time.max;
    row->tflops = 1e-12 * attention_useful_flops(&c->args) / time.median;
    // A peak that a busy neighbour held down is measured again before a row is called an error.
    if (row->tflops > row->peak_tflops)
        row->peak_tflops = fmax(row->peak_tflops, 1e-12 * threads_peak_flops((int)row->threads));
    row->share_of_peak = row->tflops / row->peak_tflops;
    snprintf(row->status, ROW_TEXT, "%s", row->share_of_peak > 1 ? "error" : "ok");
    return ATTENTION_OK;
}

attention_status cpu_bench_row(const cpu_method *method, bench_row *row)
{
    cpu_call c = {
        method,      attention_args_default(row->batch, row->heads, row->seq, row->head_dim),
        NULL,        NULL,
        NULL,        NULL,
        ATTENTION_OK};
    c.args.causal = row->causal;
    c.args.threads = (int)row->threads;
    if (method->block_q) c.args.block_q = method->block_q, c.args.block_k = method->block_k;
    float **const tensors[] = {&c.q, &c.k, &c.v, &c.o};
    const int64_t count = row->batch * row->heads * row->seq * row->head_dim;
    random_stream stream;
    attention_status status = ATTENTION_OK;
    random_seed(&stream, 0);
    for (int t = 0; t < 4 && status == ATTENTION_OK; t++) {
        status =
            tensor_new("q, k, v or o", row->batch, row->heads, row->seq, row->head_dim, tensors[t]);
        if (status != ATTENTION_OK) break;
        if (t < 3) random_normal(&stream, *tensors[t], count);
        for (int64_t i = 0; t == 3 && i < count; i++) c.o[i] = NAN;
    }
    if (status == ATTENTION_OK) status = measure(&c, row);
    row->peak_extra_with_o_mib = row->peak_extra_mib + (double)count * 4 / 0x1p20;
    row->launches = 0;
    for (int t = 0; t < 4; t++) tensor_free(*tensors[t]);
    if (status != ATTENTION_NO_MEMORY) return status;
    snprintf(row->status, ROW_TEXT, "oom"); // the sweep goes on
    return ATTENTION_OK;
}
