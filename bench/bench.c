// bench.c: every stage and baseline over a sweep of shapes, a CSV row each.
//
// make bench, make bench-full and make bench-cpu call it; bench/README.md describes method and
// columns. build/bench --help lists the options.
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu_methods.h"
#include "options.h"
#include "output_file.h"
#include "row.h"
#include "timing.h"
#ifdef WITH_CUDA
#include "gpu_bench.h"
#endif

typedef struct {
    int64_t from, to, batch, heads, head_dim, threads;
    int device;
    bool resume, reverse, fill_ratios, help;
    const char *csv, *commit, *only;
} settings;

enum { ON_GPU, ON_CPU };
static const char *const devices[] = {"gpu", "cpu", NULL};

static volatile sig_atomic_t interrupted;
static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

// The sweep: what is to be measured, in order.
static attention_status plan_shape(bench_rows *plan, const bench_row *common, const settings *s,
                                   int64_t n, int64_t d, int causal)
{
    bench_row row = *common;
    row.batch = s->batch;
    row.heads = s->heads;
    row.seq = n;
    row.head_dim = d;
    row.causal = causal;
    int count = cpu_method_count;
#ifdef WITH_CUDA
    if (s->device == ON_GPU) count = gpu_method_count;
#endif
    for (int m = 0; m < count; m++) {
        const cpu_method *cpu = &cpu_methods[s->device == ON_CPU ? m : 0];
        const char *name = cpu->name, *stage = cpu->stage, *dtype = "fp32";
        int64_t block_q = cpu->block_q, block_k = cpu->block_k, longest = cpu->longest;
#ifdef WITH_CUDA
        if (s->device == ON_GPU) {
            const gpu_method *method = &gpu_methods[m];
            if (method->only_on && strcmp(method->only_on, common->compute_capability) != 0)
                continue;
            name = method->name, stage = method->stage, dtype = method->dtype;
            block_q = method->block_q, block_k = method->block_k, longest = method->longest;
        }
#endif
        if (s->only && !strstr(name, s->only)) continue;
        snprintf(row.method, ROW_TEXT, "%s", name);
        snprintf(row.stage, ROW_TEXT, "%s", stage);
        snprintf(row.dtype, ROW_TEXT, "%s", dtype);
        row.block_q = block_q;
        row.block_k = block_q ? attention_block_k(block_k, d) : 0;
        snprintf(row.status, ROW_TEXT, "%s", longest && n > longest ? "skipped" : "");
        const attention_status status = rows_add(plan, &row);
        if (status != ATTENTION_OK) return status;
    }
    return ATTENTION_OK;
}

static attention_status plan_sweep(bench_rows *plan, const bench_row *common, const settings *s)
{
    int64_t lengths[64];
    int count = 0;
    for (int64_t n = s->from; n <= s->to && count < 64; n *= 2) lengths[count++] = n;
    for (int i = 0; i < count; i++)
        for (int64_t d = 64; d <= 128; d *= 2)
            for (int causal = 0; causal < 2; causal++) {
                if (s->head_dim && d != s->head_dim) continue;
                const attention_status status =
                    plan_shape(plan, common, s, lengths[s->reverse ? count - 1 - i : i], d, causal);
                if (status != ATTENTION_OK) return status;
            }
    return ATTENTION_OK;
}

static attention_status run_row(const settings *s, bench_row *row)
{
#ifdef WITH_CUDA
    for (int m = 0; s->device == ON_GPU && m < gpu_method_count; m++)
        if (strcmp(gpu_methods[m].name, row->method) == 0)
            return gpu_bench_row(&gpu_methods[m], row);
#endif
    for (int m = 0; s->device == ON_CPU && m < cpu_method_count; m++)
        if (strcmp(cpu_methods[m].name, row->method) == 0)
            return cpu_bench_row(&cpu_methods[m], row);
    return status_fail(ATTENTION_BAD_ARGUMENT, "there is no method %s", row->method);
}

static void print_progress(int64_t done, int64_t all, double start, const bench_row *row)
{
    if (!isatty(2)) return;
    const double elapsed = timing_now() - start;
    const double left = done ? elapsed / (double)done * (double)(all - done) : 0;
    fprintf(stderr, "\r\033[K%lld of %lld, about %.0f s left: %s N=%lld D=%lld%s", (long long)done,
            (long long)all, left, row->method, (long long)row->seq, (long long)row->head_dim,
            row->causal ? " causal" : "");
}

static void print_row(const bench_row *row)
{
    printf("%-15s B=%lld H=%lld N=%-5lld D=%-3lld %-6s ", row->method, (long long)row->batch,
           (long long)row->heads, (long long)row->seq, (long long)row->head_dim,
           row->causal ? "causal" : "");
    if (strcmp(row->status, "ok") == 0)
        printf("%9.4f ms %8.2f TFLOP/s\n", row->ms_median, row->tflops);
    else
        printf("%s\n", row->status);
    fflush(stdout);
}

static attention_status sweep(const settings *s)
{
    bench_row common = {.ms_median = NAN,
                        .ms_min = NAN,
                        .ms_max = NAN,
                        .ms_first = NAN,
                        .ms_host = NAN,
                        .ms_graph = NAN,
                        .tflops = NAN,
                        .share_of_peak = NAN,
                        .ratio_to_sdpa_flash = NAN,
                        .ratio_to_sdpa_cudnn = NAN,
                        .peak_extra_mib = NAN,
                        .peak_extra_with_o_mib = NAN,
                        .max_abs_err = NAN};
    bench_rows plan = {0}, done = {0};
    attention_status status = ATTENTION_OK;
    snprintf(common.commit, ROW_TEXT, "%s", s->commit);
    if (s->resume && access(s->csv, F_OK) == 0) status = rows_read(&done, s->csv);
    if (status != ATTENTION_OK) return status;
    if (s->device == ON_CPU) {
        cpu_bench_open(&common, (int)s->threads);
    } else {
#ifdef WITH_CUDA
        status = gpu_bench_open(&common, s->batch * s->heads * s->to * 128);
#else
        status = status_fail(ATTENTION_NO_DEVICE, "this program was made without nvcc");
#endif
    }
    if (status == ATTENTION_OK) status = plan_sweep(&plan, &common, s);
    if (status == ATTENTION_OK && plan.count == 0)
        status = status_fail(ATTENTION_BAD_ARGUMENT,
                             "nothing to measure: --only, --head-dim (64 or 128), --from and --to "
                             "leave no row");
    const double start = timing_now();
    for (int64_t i = 0; i < plan.count && status == ATTENTION_OK && !interrupted; i++) {
        bench_row *row = &plan.rows[i];
        print_progress(i, plan.count, start, row);
        if (rows_find(&done, row)) continue; // measured before the interruption
        if (strcmp(row->status, "skipped") != 0) status = run_row(s, row);
        if (status == ATTENTION_OK) status = rows_add(&done, row);
        // After every row, so that an interrupted sweep loses none.
        if (status == ATTENTION_OK) status = rows_write(&done, s->csv);
        if (isatty(2)) fputs("\r\033[K", stderr);
        if (status == ATTENTION_OK) print_row(row);
    }
    if (interrupted) printf("interrupted: %s has the rows so far; --resume goes on\n", s->csv);
#ifdef WITH_CUDA
    if (s->device == ON_GPU) gpu_bench_close();
#endif
    rows_free(&plan);
    rows_free(&done);
    return status;
}

static attention_status fill(const settings *s)
{
    bench_rows rows = {0};
    attention_status status = rows_read(&rows, s->csv);
    if (status == ATTENTION_OK) {
        rows_fill_ratios(&rows);
        status = rows_write(&rows, s->csv);
    }
    rows_free(&rows);
    return status;
}

int main(int argc, char **argv)
{
    settings s = {.from = 128, .to = 2048, .batch = 1, .heads = 16, .commit = "unknown"};
    const option table[] = {
        {"csv", "FILE", "the table; required", OPTION_TEXT, &s.csv, 0, 0, NULL, NULL},
        {"device", "WHERE", "gpu or cpu (gpu)", OPTION_CHOICE, &s.device, 0, 0, devices, NULL},
        {"from", "N", "shortest sequence (128); doubled from there", OPTION_INTEGER, &s.from, 1,
         1 << 20, NULL, NULL},
        {"to", "N", "longest sequence (2048)", OPTION_INTEGER, &s.to, 1, 1 << 20, NULL, NULL},
        {"batch", "N", "batches (1)", OPTION_INTEGER, &s.batch, 1, 1 << 16, NULL, NULL},
        {"heads", "N", "heads (16)", OPTION_INTEGER, &s.heads, 1, 1 << 16, NULL, NULL},
        {"head-dim", "N", "64 or 128 alone (both)", OPTION_INTEGER, &s.head_dim, 64, 128, NULL,
         NULL},
        {"threads", "N", "CPU threads (all cores)", OPTION_INTEGER, &s.threads, 1, 1024, NULL,
         NULL},
        {"only", "TEXT", "methods whose name contains it", OPTION_TEXT, &s.only, 0, 0, NULL, NULL},
        {"reverse", NULL, "longest sequences first", OPTION_FLAG, &s.reverse, 0, 0, NULL, NULL},
        {"resume", NULL, "keep the rows that FILE has, add to them", OPTION_FLAG, &s.resume, 0, 0,
         NULL, NULL},
        {"fill-ratios", NULL, "only fill FILE's ratios to SDPA", OPTION_FLAG, &s.fill_ratios, 0, 0,
         NULL, NULL},
        {"commit", "TEXT", "what the column commit says", OPTION_TEXT, &s.commit, 0, 0, NULL, NULL},
        {"help", NULL, "this", OPTION_FLAG, &s.help, 0, 0, NULL, NULL},
    };
    enum { COUNT = sizeof table / sizeof *table };
    attention_status status = options_parse(table, COUNT, argc, argv);
    if (status == ATTENTION_OK && s.help) {
        printf("usage: %s --csv FILE [options]\nTimes every stage and baseline; see "
               "bench/README.md.\n",
               argv[0]);
        options_help(table, COUNT);
        return 0;
    }
    if (status == ATTENTION_OK && !s.csv)
        status = status_fail(ATTENTION_BAD_ARGUMENT, "--csv is required; see --help");
    if (status == ATTENTION_OK && strpbrk(s.commit, ",\n"))
        status = status_fail(ATTENTION_BAD_ARGUMENT, "--commit: a comma would end its field");
    if (status == ATTENTION_OK) {
        signal(SIGINT, interrupt); // the row that runs is finished first
        signal(SIGTERM, interrupt);
        status = s.fill_ratios ? fill(&s) : sweep(&s);
    }
    if (status == ATTENTION_OK) status = stdout_flush();
    if (status != ATTENTION_OK) fprintf(stderr, "%s: %s\n", argv[0], status_message());
    return interrupted ? 1 : status_exit_code(status);
}
