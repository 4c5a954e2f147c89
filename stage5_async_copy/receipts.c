// receipts.c: what a warp does for a tile, stage 5 against stage 4, and on a GPU how long both
// take.
#include "receipts.h"

#include <inttypes.h>
#include <stdio.h>

#include "gpu_device.h"
#include "half.h"
#include "oracle.h"
#include "report.h"
#include "stage_run.h"
#include "tensor.h"

static attention_status inputs(const stage *stage, stage_run *run, int64_t heads, int64_t n,
                               int64_t d, attention_dtype dtype, bool causal, int threads)
{
    *run = (stage_run){.args = attention_args_default(1, heads, n, d), .amp = 1};
    run->args.dtype = dtype;
    run->args.causal = causal;
    run->args.block_q = stage->block_q;
    run->args.block_k = stage->block_k;
    run->args.threads = threads;
    return stage_run_inputs(run);
}

// The kernel's shape in numbers: two products of 2 rows keys d FLOPs, 4096 an m16n8k16; k and v
// once, 512 bytes an ldmatrix.x4; a score a lane and 32; 16 bytes a copy.
static void tile_work(const stage *stage)
{
    const char *const headings[] = {"warps",     "rows",        "mma",          "ldmatrix",
                                    "bytes/mma", "exp2 a lane", "copies a lane"};
    report_heading("what a warp does for a tile of %" PRId64 " keys", stage->block_k);
    table *t = table_new(7, headings);
    for (int64_t d = 64; d <= 128; d *= 2) {
        const int64_t warps = d / 16, rows = stage->block_q / warps, keys = stage->block_k;
        const int64_t mma = rows * keys * d / 1024, loads = keys * d / 128;
        table_cell(t, "D=%" PRId64 ": %" PRId64, d, warps);
        table_cell(t, "%" PRId64, rows);
        table_cell(t, "%" PRId64, mma);
        table_cell(t, "%" PRId64, loads);
        table_cell(t, "%" PRId64, 512 * loads / mma);
        table_cell(t, "%" PRId64, rows * keys / 32);
        table_cell(t, "%" PRId64, 2 * keys * d * 2 / 16 / (32 * warps));
    }
    table_print(t);
}

// The same function: every element by the rule of --check, and how far from stage 4's.
static void against_stage_4(const stage *stage, int threads)
{
    const char *const headings[] = {"N=257, 2 heads", "max err",      "mean",
                                    "rounding",       "stage 4 mean", "apart"};
    report_heading("against float64 and stage 4");
    table *t = table_new(6, headings);
    int wrong = 0;
    for (int i = 0; i < 8; i++) {
        stage_run run;
        oracle_report now, before;
        const attention_dtype dtype = i < 4 ? DTYPE_FP16 : DTYPE_BF16;
        float *o = NULL;
        attention_status status =
            inputs(stage, &run, 2, 257, i / 2 % 2 ? 128 : 64, dtype, i % 2, threads);
        const int64_t d = run.args.head_dim, count = INT64_C(514) * d;
        if (status == ATTENTION_OK) status = tensor_new("o", 1, 2, 257, d, &o);
        if (status == ATTENTION_OK)
            status = stage->previous(run.q, run.k, run.v, o, run.lse, &run.args);
        if (status == ATTENTION_OK)
            status = oracle_check(&before, run.q, run.k, run.v, o, run.lse, &run.args);
        if (status == ATTENTION_OK)
            status = stage->forward(run.q, run.k, run.v, run.o, run.lse, &run.args);
        if (status == ATTENTION_OK)
            status = oracle_check(&now, run.q, run.k, run.v, run.o, run.lse, &run.args);
        if (status != ATTENTION_OK) {
            report_verdict(false, "%s", status_message());
        } else {
            const double apart = tensor_compare(run.o, o, count).max_abs;
            table_cell(t, "%s D=%" PRId64 "%s", dtype_name(dtype), d, i % 2 ? " causal" : "");
            table_cell(t, "%.2e", now.max_abs);
            table_cell(t, "%.2e", now.mean_abs);
            table_cell(t, "%.2e", now.rounding_mean_abs);
            table_cell(t, "%.2e", before.mean_abs);
            table_cell(t, "%.2e", apart);
            wrong += now.failed != 0 || !(now.mean_abs <= 1.02 * before.mean_abs);
        }
        tensor_free(o);
        stage_run_free(&run);
    }
    table_print(t);
    report_verdict(wrong == 0, "every element within its bound, the mean error no worse than\n"
                               "      stage 4's by more than 2%%");
}

static void times(const stage *stage, int threads)
{
    const char *const headings[] = {"B=1 H=16 fp16",   "stage 4 ms", "stage 5 ms", "TFLOP/s",
                                    "causal: stage 4", "stage 5",    "TFLOP/s"};
    report_heading("times, medians of 20 by events");
    table *t = table_new(7, headings);
    for (int i = 0; i < 8; i++) {
        const int64_t n = 1024 << i % 4, d = i < 4 ? 64 : 128;
        table_cell(t, "D=%" PRId64 " N=%" PRId64, d, n);
        for (int causal = 0; causal < 2; causal++) {
            stage_run run;
            timing_result before = {0}, now = {0};
            int64_t extra;
            attention_status status = inputs(stage, &run, 16, n, d, DTYPE_FP16, causal, threads);
            if (status == ATTENTION_OK)
                status = gpu_device_time(stage->previous_kernel->gpu.device, run.q, run.k, run.v,
                                         &run.args, 3, 20, &before, &extra);
            if (status == ATTENTION_OK)
                status = gpu_device_time(stage->build->device, run.q, run.k, run.v, &run.args, 3,
                                         20, &now, &extra);
            if (status != ATTENTION_OK) report_verdict(false, "%s", status_message());
            table_cell(t, "%.3f", 1e3 * before.median);
            table_cell(t, "%.3f", 1e3 * now.median);
            table_cell(t, "%.1f", 1e-12 * attention_useful_flops(&run.args) / now.median);
            stage_run_free(&run);
        }
    }
    table_print(t);
}

void print_receipts(const stage *stage, int threads)
{
    tile_work(stage);
    against_stage_4(stage, threads);
    if (stage->on_gpu) times(stage, threads);
}
