// stage_modes.c: what a run can be asked for: a summary, --check, --bench, --trace.
#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>

#include "gpu_device.h"
#include "half.h"
#include "matmul.h"
#include "oracle.h"
#include "output_file.h"
#include "progress.h"
#include "report.h"
#include "stage_run.h"
#include "tensor.h"
#include "timing.h"
#include "util.h"

enum { TEXT = 32 };

static attention_status write_csv(const table *t, const char *path)
{
    if (!path) return ATTENTION_OK;
    output_file file;
    const attention_status status = output_file_open(&file, path);
    if (status != ATTENTION_OK) return status;
    table_write_csv(t, file.stream);
    return output_file_commit(&file);
}

static attention_status forward(stage_run *run, attention_function *f)
{
    return f(run->q, run->k, run->v, run->o, run->lse, &run->args);
}

// With counters or a trace: in a CUDA stage they come from the tracing build.
static attention_status forward_recorded(stage_run *run, const stage *stage)
{
    return forward(run, stage->build ? stage->build->traced : stage->forward);
}

attention_status stage_run_summary(stage_run *run, const stage *stage)
{
    attention_counters counters = {0};
    run->args.counters = &counters;
    const int64_t before = tensor_bytes();
    tensor_reset_peak();
    const double start = timing_now();
    const attention_status status = forward_recorded(run, stage);
    const double elapsed = timing_now() - start;
    run->args.counters = NULL;
    if (status != ATTENTION_OK) return status;

    char extra[TEXT], traffic[TEXT];
    printf("one call%s: %.3f ms, %.2f GFLOP in %" PRId64 " tiles, %s crossing memory",
           stage->build ? ", copies and counting included" : "", 1e3 * elapsed,
           1e-9 * (double)counters.flops, counters.tiles,
           format_bytes((double)(counters.bytes + counters.score_bytes), traffic, TEXT));
    if (!stage->build)
        printf(", %s of scratch",
               format_bytes((double)(tensor_peak_bytes() - before), extra, TEXT));
    puts("");
    printf("o[0, 0, 0, ...] =");
    for (int64_t x = 0; x < min64(4, run->args.head_dim); x++) printf(" %.6g", (double)run->o[x]);
    printf("%s\nlse[0, 0, 0] = %.6g\n", run->args.head_dim > 4 ? " ..." : "", (double)run->lse[0]);
    return ATTENTION_OK;
}

// One row of the --check table: a stage's output judged by the oracle.
static attention_status check_row(stage_run *run, table *t, const char *name, int64_t *wrong)
{
    oracle_report r;
    const attention_status status =
        oracle_check(&r, run->q, run->k, run->v, run->o, run->lse, &run->args);
    if (status != ATTENTION_OK) return status;
    table_cell(t, "%s", name);
    table_cell(t, "%" PRId64 " of %" PRId64, r.rows_checked, r.rows);
    table_cell(t, "%.3e", r.max_abs);
    table_cell(t, "%.3e", r.mean_abs);
    table_cell(t, "%.3e", r.rounding_mean_abs);
    table_cell(t, "%.2f", r.max_ratio);
    table_cell(t, "%.1e", r.lse_max);
    *wrong += r.failed;
    if (r.failed)
        fprintf(stderr,
                "%s: %" PRId64 " elements are wrong, the first of o at flat index %" PRId64 "\n",
                name, r.failed, r.first_failed);
    return ATTENTION_OK;
}

attention_args stage_previous_args(const stage *stage, const attention_args *args)
{
    attention_args before = *args;
    if (!stage->previous_kernel) return before;
    before.block_q = stage->previous_kernel->block_q;
    before.block_k = attention_block_k(stage->previous_kernel->block_k, args->head_dim);
    return before;
}

attention_status stage_run_check(stage_run *run, const stage *stage, const char *csv)
{
    const attention_args *a = &run->args;
    const int64_t count = a->batch * a->heads * a->seq * a->head_dim;
    const char *const headings[] = {"vs float64", "rows",     "max err", "mean err",
                                    "rounding",   "of bound", "lse err"};
    int64_t wrong = 0;
    attention_status status = forward(run, stage->forward);
    if (status != ATTENTION_OK) return status;

    table *t = table_new(7, headings);
    status = check_row(run, t, stage->name, &wrong);
    tensor_difference difference = {0};
    if (status == ATTENTION_OK && stage->previous) {
        float *own;
        status = tensor_new("o", a->batch, a->heads, a->seq, a->head_dim, &own);
        if (status == ATTENTION_OK) {
            float *swap = run->o;
            const attention_args given = run->args;
            run->o = own;
            run->args = stage_previous_args(stage, &given);
            status = forward(run, stage->previous);
            if (status == ATTENTION_OK) status = check_row(run, t, stage->previous_name, &wrong);
            difference = tensor_compare(swap, own, count);
            run->o = swap;
            run->args = given;
            tensor_free(own);
        }
    }
    if (status == ATTENTION_OK) status = write_csv(t, csv);
    if (status != ATTENTION_OK) {
        table_free(t);
        return status;
    }
    table_print(t);
    if (stage->previous)
        printf("  %s against %s: max difference %.3e, mean %.3e\n", stage->name,
               stage->previous_name, difference.max_abs, difference.mean_abs);
    const char *const of = a->seq > 2048 ? " of the sampled rows" : "";
    if (wrong)
        report_verdict(false, "%" PRId64 " elements%s are outside their bound", wrong, of);
    else if (!isfinite(difference.max_abs))
        report_verdict(false, "the two stages differ where an element is not finite");
    else
        report_verdict(true, "every element%s is within its bound", of);
    return ATTENTION_OK;
}

typedef struct {
    stage_run *run;
    attention_function *f;
    attention_status status;
} timed_call;

static int call_once(void *context)
{
    timed_call *call = context;
    call->status = forward(call->run, call->f);
    return call->status != ATTENTION_OK;
}

// Fused multiply-adds a second of all threads at once, in registers.
static double peak_flops(int threads)
{
    double sum = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    sum += matmul_peak_flops();
    return sum;
}

typedef struct {
    const char *name;
    attention_status status;
    timing_result time;
    int64_t scratch; // most bytes held beyond the tensors
} bench_result;

static bench_result bench_one(stage_run *run, const char *name, attention_function *f)
{
    timed_call call = {run, f, ATTENTION_OK};
    bench_result result = {.name = name};
    timing_result cold;
    const int64_t before = tensor_bytes();
    tensor_reset_peak();
    progress("bench", 0, 1);
    // As many repeats as two seconds hold, from 5 to 50; one call tells how long one takes.
    int failed = timing_measure(&cold, call_once, &call, 0, 1);
    if (!failed) {
        const int repeats = (int)fmin(50, fmax(5, 2.0 / cold.median));
        failed = timing_measure(&result.time, call_once, &call, 1, repeats);
        result.time.first = cold.first;
    }
    progress_done();
    result.status = call.status;
    result.scratch = tensor_peak_bytes() - before;
    return result;
}

static void bench_row(table *t, const bench_result *r, double flops, double peak)
{
    table_cell(t, "%s", r->name);
    if (r->status != ATTENTION_OK) {
        table_cell(t, "%s", status_string(r->status));
        for (int c = 2; c < 8; c++) table_cell(t, "-");
        return;
    }
    const double rate = flops / r->time.median;
    table_cell(t, "%.3f", 1e3 * r->time.first);
    table_cell(t, "%.3f", 1e3 * r->time.median);
    table_cell(t, "%.3f", 1e3 * r->time.min);
    table_cell(t, "%.3f", 1e3 * r->time.max);
    table_cell(t, "%.1f", 1e-9 * rate);
    table_cell(t, "%.1f", 100 * rate / peak);
    table_cell(t, "%.1f", (double)r->scratch / 0x1p20);
}

// A kernel's row of the GPU's table.
static attention_status gpu_bench_row(stage_run *run, table *t, const char *name,
                                      const stage_kernel *kernel, timing_result *time)
{
    const double flops = attention_useful_flops(&run->args);
    attention_args args = run->args;
    args.block_q = kernel->block_q;
    args.block_k = attention_block_k(kernel->block_k, args.head_dim);
    int64_t extra;
    const attention_status status =
        gpu_device_time(kernel->gpu.device, run->q, run->k, run->v, &args, 3, 20, time, &extra);
    if (status != ATTENTION_OK) return status;
    table_cell(t, "%s", name);
    table_cell(t, "%.3f", 1e3 * time->first);
    table_cell(t, "%.3f", 1e3 * time->median);
    table_cell(t, "%.3f", 1e3 * time->min);
    table_cell(t, "%.3f", 1e3 * time->max);
    table_cell(t, "%.1f", 1e-12 * flops / time->median);
    table_cell(t, "%.1f", (double)extra / 0x1p20);
    return ATTENTION_OK;
}

// On the GPU, events time the kernel alone.
static attention_status gpu_bench(stage_run *run, const stage *stage, const char *csv)
{
    const char *const headings[] = {"method", "first ms", "median",   "min",
                                    "max",    "TFLOP/s",  "extra MiB"};
    timing_result own, before = {0};
    table *t = table_new(7, headings);
    attention_status status = gpu_bench_row(run, t, stage->name, stage->kernel, &own);
    if (status == ATTENTION_OK && stage->previous_kernel)
        status = gpu_bench_row(run, t, stage->previous_name, stage->previous_kernel, &before);
    if (status == ATTENTION_OK) status = write_csv(t, csv);
    if (status != ATTENTION_OK) {
        table_free(t);
        return status;
    }
    table_print(t);
    if (before.repeats > 0)
        printf("  %s takes %.2fx the time of %s\n", stage->previous_name,
               before.median / own.median, stage->name);
    printf("  useful FLOPs %.0f, from the shape alone; medians of %d repeats by events, inputs\n"
           "  in the cache where they fit; extra: device memory beyond q, k, v, o and lse\n",
           attention_useful_flops(&run->args), own.repeats);
    return ATTENTION_OK;
}

attention_status stage_run_bench(stage_run *run, const stage *stage, const char *csv)
{
    if (stage->on_gpu) return gpu_bench(run, stage, csv);
    if (stage->build) puts("the emulator's time; it says nothing about a GPU");
    // Freed memory stays with the process, so that the calls after the first find their pages
    // mapped: without this a large malloc is fresh, zeroed memory every time.
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT32_MAX);
    const char *const headings[] = {"method", "first ms", "median", "min",
                                    "max",    "GFLOP/s",  "% peak", "scratch MiB"};
    const int threads = attention_threads(&run->args);
    const double flops = attention_useful_flops(&run->args);
    // A peak measured while another job held a core is no peak: before and after, the larger.
    const double before = peak_flops(threads);
    const bench_result own = bench_one(run, stage->name, stage->forward);
    if (own.status != ATTENTION_OK) return own.status;
    bench_result baseline = {0};
    const attention_args given = run->args;
    run->args = stage_previous_args(stage, &given);
    if (stage->baseline) baseline = bench_one(run, stage->baseline_name, stage->baseline);
    run->args = given;
    // Where only the baseline's matrices do not fit, its row says so.
    if (baseline.status != ATTENTION_OK && baseline.status != ATTENTION_NO_MEMORY)
        return baseline.status;
    const double after = peak_flops(threads), peak = fmax(before, after);

    table *t = table_new(8, headings);
    bench_row(t, &own, flops, peak);
    if (stage->baseline) bench_row(t, &baseline, flops, peak);
    const attention_status status = write_csv(t, csv);
    if (status != ATTENTION_OK) {
        table_free(t);
        return status;
    }
    table_print(t);
    printf("  peak: %.1f GFLOP/s of multiply-adds in the registers of %d thread%s, %s;\n"
           "  measured before and after, the larger of %.1f and %.1f\n",
           1e-9 * peak, threads, threads == 1 ? "" : "s", matmul_instruction_set(), 1e-9 * before,
           1e-9 * after);
    if (baseline.time.repeats > 0)
        printf("  %s takes %.2fx the time of %s on the first call, %.2fx once warm\n",
               stage->baseline_name, baseline.time.first / own.time.first, stage->name,
               baseline.time.median / own.time.median);
    printf("  useful FLOPs %.0f, from the shape alone; medians of %d repeats\n", flops,
           own.time.repeats);
    return ATTENTION_OK;
}

attention_status stage_run_trace(stage_run *run, const stage *stage, int64_t row, const char *csv)
{
    const attention_args *a = &run->args;
    const int64_t tiles = (a->seq - 1) / a->block_k + 1;
    rebase_step *steps = calloc((size_t)tiles, sizeof *steps);
    if (!steps)
        return status_fail(ATTENTION_NO_MEMORY, "no memory for a trace of %" PRId64 " tiles",
                           tiles);
    rebase_trace trace = {.row = row, .steps = steps, .capacity = tiles};
    run->args.trace = &trace;
    attention_status status = forward_recorded(run, stage);
    run->args.trace = NULL;

    const char *const headings[] = {"tile",  "first key",  "keys", "m_old",
                                    "m_new", "correction", "l"};
    table *t = table_new(7, headings);
    for (int64_t i = 0; i < trace.count; i++) {
        const rebase_step *s = &steps[i];
        table_cell(t, "%" PRId64, i);
        table_cell(t, "%" PRId64, s->first_key);
        table_cell(t, "%" PRId64, s->keys);
        table_cell(t, "%.6f", (double)s->m_old);
        table_cell(t, "%.6f", (double)s->m_new);
        table_cell(t, "%.6f", (double)s->correction);
        table_cell(t, "%.6f", (double)s->l);
    }
    free(steps);
    if (status == ATTENTION_OK) status = write_csv(t, csv);
    if (status != ATTENTION_OK) {
        table_free(t);
        return status;
    }
    printf("rebase of batch %" PRId64 ", head %" PRId64 ", query %" PRId64 " (natural-log units)\n",
           row / a->seq / a->heads, row / a->seq % a->heads, row % a->seq);
    table_print(t);
    return ATTENTION_OK;
}
