// stage_receipts.c: what the later CUDA stages print alike: how they stand beside the stage before.
#include "stage_receipts.h"

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
    run->args.block_k = attention_block_k(stage->block_k, d);
    run->args.threads = threads;
    return stage_run_inputs(run);
}

void receipt_against_previous(const stage *stage, int threads)
{
    char mean[32];
    snprintf(mean, sizeof mean, "%s mean", stage->previous_name);
    const char *const headings[] = {"N=257, 2 heads", "max err", "mean", "rounding", mean, "apart"};
    report_heading("against float64 and %s", stage->previous_name);
    table *t = table_new(6, headings);
    int wrong = 0;
    attention_status status = ATTENTION_OK;
    for (int i = 0; i < 8 && status == ATTENTION_OK; i++) {
        stage_run run;
        oracle_report now, before;
        const attention_dtype dtype = i < 4 ? DTYPE_FP16 : DTYPE_BF16;
        float *o = NULL;
        status = inputs(stage, &run, 2, 257, i / 2 % 2 ? 128 : 64, dtype, i % 2, threads);
        const int64_t d = run.args.head_dim, count = INT64_C(514) * d;
        if (status == ATTENTION_OK) status = tensor_new("o", 1, 2, 257, d, &o);
        const attention_args args_before = stage_previous_args(stage, &run.args);
        if (status == ATTENTION_OK)
            status = stage->previous(run.q, run.k, run.v, o, run.lse, &args_before);
        if (status == ATTENTION_OK)
            status = oracle_check(&before, run.q, run.k, run.v, o, run.lse, &run.args);
        if (status == ATTENTION_OK)
            status = stage->forward(run.q, run.k, run.v, run.o, run.lse, &run.args);
        if (status == ATTENTION_OK)
            status = oracle_check(&now, run.q, run.k, run.v, run.o, run.lse, &run.args);
        if (status == ATTENTION_OK) {
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
    if (status != ATTENTION_OK) { // nothing to judge
        table_free(t);
        report_verdict(false, "%s", status_message());
        return;
    }
    table_print(t);
    report_verdict(wrong == 0,
                   "every element within its bound, the mean error no worse than\n"
                   "      %s's by more than 2%%",
                   stage->previous_name);
}

void receipt_times(const stage *stage, int threads)
{
    char before_ms[32], now_ms[32], causal[48];
    snprintf(before_ms, sizeof before_ms, "%s ms", stage->previous_name);
    snprintf(now_ms, sizeof now_ms, "%s ms", stage->name);
    snprintf(causal, sizeof causal, "causal: %s", stage->previous_name);
    const char *const headings[] = {"B=1 H=16 fp16", before_ms,   now_ms,   "TFLOP/s",
                                    causal,          stage->name, "TFLOP/s"};
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
            const attention_args args_before = stage_previous_args(stage, &run.args);
            if (status == ATTENTION_OK)
                status = gpu_device_time(stage->previous_kernel->gpu.device, run.q, run.k, run.v,
                                         &args_before, 3, 20, &before, &extra);
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
