// receipts.c: R14, case by case; what the kernel holds; and, on a GPU, how long it takes.
#include "receipts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "gpu_device.h"
#include "oracle.h"
#include "progress.h"
#include "report.h"
#include "stage_run.h"
#include "tensor.h"

typedef struct {
    attention_dtype dtype;
    int64_t heads, seq, head_dim;
    bool causal;
    double amp;
} shape;

// Every element by the design's rule, the largest error below the article's bound, the mean one
// within 1.6 times that of rounding the exact answer.
typedef struct {
    int cases, wrong;
    double worst_mean; // largest mean error over that of rounding
} score;

static attention_status stage_inputs(const stage *stage, stage_run *run, shape s, int threads)
{
    *run = (stage_run){.args = attention_args_default(1, s.heads, s.seq, s.head_dim), .amp = s.amp};
    run->args.dtype = s.dtype;
    run->args.causal = s.causal;
    run->args.block_q = stage->block_q;
    run->args.block_k = stage->block_k;
    run->args.threads = threads;
    return stage_run_inputs(run);
}

static attention_status judge(const stage *stage, shape s, int threads, oracle_report *r)
{
    stage_run run;
    attention_status status = stage_inputs(stage, &run, s, threads);
    if (status == ATTENTION_OK)
        status = stage->forward(run.q, run.k, run.v, run.o, run.lse, &run.args);
    if (status == ATTENTION_OK)
        status = oracle_check(r, run.q, run.k, run.v, run.o, run.lse, &run.args);
    stage_run_free(&run);
    return status;
}

// One row: the case without and with the causal mask.
static bool judged_row(const stage *stage, table *t, shape s, int threads, score *total)
{
    const double bound = s.dtype == DTYPE_FP16 ? 0x1p-9 : 0x1p-6;
    table_cell(t, "%s D=%" PRId64 " N=%" PRId64, dtype_name(s.dtype), s.head_dim, s.seq);
    for (int causal = 0; causal < 2; causal++) {
        oracle_report r;
        s.causal = causal;
        if (judge(stage, s, threads, &r) != ATTENTION_OK) {
            report_verdict(false, "%s", status_message());
            return false;
        }
        table_cell(t, "%.2e", r.max_abs);
        table_cell(t, "%.2e", r.mean_abs);
        table_cell(t, "%.2e", r.rounding_mean_abs);
        total->cases++;
        total->wrong +=
            !(r.failed == 0 && r.max_abs <= bound && r.mean_abs <= 1.6 * r.rounding_mean_abs);
        total->worst_mean = fmax(total->worst_mean, r.mean_abs / r.rounding_mean_abs);
    }
    return true;
}

static const char *const columns[] = {"",           "max err", "mean",    "rounding",
                                      "max causal", "mean",    "rounding"};

// R14: the article's matrix, the amplified case, and on a GPU the long ones.
static void correctness(const stage *stage, int threads)
{
    static const int64_t lengths[] = {64, 65, 127, 128, 129, 257};
    score fused = {0}, amplified = {0}, tall = {0};
    report_heading("R14  against float64, and what rounding the exact answer costs (Forward)");
    table *t = table_new(7, columns);
    bool fine = true;
    for (int i = 0; i < 24 && fine; i++) {
        const shape s = {
            i < 12 ? DTYPE_FP16 : DTYPE_BF16, 2, lengths[i % 6], i / 6 % 2 ? 128 : 64, false, 1};
        progress("R14", i, 24);
        fine = judged_row(stage, t, s, threads, &fused);
    }
    progress_done();
    table_print(t);
    if (!fine) return; // said why
    report_verdict(fused.wrong == 0,
                   "%d of %d: each element within its bound, max at most 2^-9 (fp16) and\n"
                   "      2^-6 (bf16), mean at most 1.6x rounding (worst %.2fx)",
                   fused.cases - fused.wrong, fused.cases, fused.worst_mean);

    puts("\n  q and k amplified 4x");
    t = table_new(7, columns);
    fine = judged_row(stage, t, (shape){DTYPE_FP16, 2, 513, 64, false, 4}, threads, &amplified);
    table_print(t);
    if (!fine) return;
    report_verdict(amplified.wrong == 0, "within the same bounds: scores of 70 and more");
    if (!stage->on_gpu) {
        puts("\n  the six long cases, N = 2048, 4096 and 8192, are for a GPU");
        return;
    }
    puts("\n  long, 512 rows of each sampled");
    t = table_new(7, columns);
    for (int64_t n = 2048; n <= 8192 && fine; n *= 2)
        fine = judged_row(stage, t, (shape){DTYPE_FP16, 16, n, 64, false, 1}, threads, &tall);
    table_print(t);
    if (!fine) return;
    report_verdict(tall.wrong == 0, "%d of %d (worst mean %.2fx rounding)", tall.cases - tall.wrong,
                   tall.cases, tall.worst_mean);
}

// What one call holds beyond q, k, v, o and lse.
static attention_status extra_bytes(const stage *stage, shape s, int threads, int64_t *extra)
{
    stage_run run;
    attention_status status = stage_inputs(stage, &run, s, threads);
    const int64_t rows = s.heads * s.seq, tensors = 4 * rows * s.head_dim * 2 + rows * 4;
    timing_result time;
    if (status == ATTENTION_OK && stage->on_gpu) {
        status = gpu_device_time(stage->build->device, run.q, run.k, run.v, &run.args, 1, 1, &time,
                                 extra);
    } else if (status == ATTENTION_OK) { // the emulator's device memory is in the tally of tensors
        const int64_t before = tensor_bytes();
        tensor_reset_peak();
        status = stage->forward(run.q, run.k, run.v, run.o, run.lse, &run.args);
        *extra = tensor_peak_bytes() - before - tensors;
    }
    stage_run_free(&run);
    return status;
}

static void memory(const stage *stage, int threads)
{
    const char *const headings[] = {"seq", "stage 0: S and P", "stage 3 beyond q k v o lse"};
    const int64_t heads = stage->on_gpu ? 16 : 1, longest = stage->on_gpu ? 8192 : 1024;
    report_heading("memory: %" PRId64 " head%s, D=64, fp16; stage 0's S and P in fp32", heads,
                   heads == 1 ? "" : "s");
    table *t = table_new(3, headings);
    int64_t most = 0;
    for (int64_t n = longest / 8; n <= longest; n *= 2) {
        int64_t extra = -1;
        char text[32];
        if (extra_bytes(stage, (shape){DTYPE_FP16, heads, n, 64, false, 1}, threads, &extra) !=
            ATTENTION_OK) {
            table_free(t);
            report_verdict(false, "%s", status_message());
            return;
        }
        table_cell(t, "%" PRId64, n);
        table_cell(t, "%s", format_bytes(2.0 * (double)(heads * n * n) * 4, text, sizeof text));
        table_cell(t, "%" PRId64 " bytes", extra);
        most = extra > most || extra < 0 ? extra : most;
    }
    table_print(t);
    report_verdict(most == 0, "nothing: the scores live and die in registers");
}

// On a GPU: the kernel that was chosen, by events.
static void times(const stage *stage, int threads)
{
    const char *const headings[] = {"B=1 H=16 fp16", "first ms",          "median ms",
                                    "TFLOP/s",       "causal: median ms", "TFLOP/s"};
    report_heading("times: %s kernel, by events, inputs in the cache where they fit",
                   stage->kernel->name);
    table *t = table_new(6, headings);
    for (int i = 0; i < 8; i++) {
        shape s = {DTYPE_FP16, 16, 1024 << i % 4, i < 4 ? 64 : 128, false, 1};
        table_cell(t, "D=%" PRId64 " N=%" PRId64, s.head_dim, s.seq);
        for (int causal = 0; causal < 2; causal++) {
            stage_run run;
            timing_result time = {0};
            int64_t extra;
            s.causal = causal;
            attention_status status = stage_inputs(stage, &run, s, threads);
            if (status == ATTENTION_OK)
                status = gpu_device_time(stage->build->device, run.q, run.k, run.v, &run.args, 3,
                                         20, &time, &extra);
            if (status != ATTENTION_OK) report_verdict(false, "%s", status_message());
            if (!causal) table_cell(t, "%.3f", 1e3 * time.first);
            table_cell(t, "%.3f", 1e3 * time.median);
            table_cell(t, "%.1f", 1e-12 * attention_useful_flops(&run.args) / time.median);
            stage_run_free(&run);
        }
    }
    table_print(t);
    puts("  useful FLOPs from the shape alone: causal counts the lower triangle");
}

void print_receipts(const stage *stage, int threads)
{
    correctness(stage, threads);
    memory(stage, threads);
    if (stage->on_gpu) times(stage, threads);
}
