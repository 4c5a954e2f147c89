// receipts.c: R12 and R13: tiles skipped, and what that saves.
#include "receipts.h"

#include <inttypes.h>
#include <stdio.h>

#include "gpu_device.h"
#include "output_file.h"
#include "report.h"
#include "stage_run.h"
#include "stages.h"
#include "tensor.h"

typedef struct {
    int64_t full, masked, skipped;
    int64_t keys; // read, over all query tiles
} walked;

// The key loop of every query tile, without its arithmetic: the kernel's own bound, its own steps.
static walked walk(int64_t n, int64_t block_q, int64_t block_k, char *map)
{
    walked w = {0};
    for (int64_t i = 0; i < n; i += block_q) {
        const int64_t end = attention_keys_end_stage4_emulated(i, block_q, n, true);
        for (int64_t j = 0; j < n; j += block_k) {
            const bool visited = j<end, masked = j + block_k - 1> i;
            w.skipped += !visited;
            w.masked += visited && masked;
            w.full += visited && !masked;
            if (map) *map++ = "#/."[visited ? masked : 2];
        }
        w.keys += end;
    }
    return w;
}

static attention_status record(const stage *stage, int64_t heads, int64_t n, bool causal,
                               int threads, attention_counters *counters)
{
    stage_run run = {.args = attention_args_default(1, heads, n, 64), .amp = 1};
    run.args.dtype = DTYPE_FP16;
    run.args.causal = causal;
    run.args.block_q = stage->block_q;
    run.args.block_k = stage->block_k;
    run.args.threads = threads;
    attention_status status = stage_run_inputs(&run);
    run.args.counters = counters;
    if (status == ATTENTION_OK)
        status = stage->build->traced(run.q, run.k, run.v, run.o, run.lse, &run.args);
    stage_run_free(&run);
    return status;
}

static void map(const stage *stage, int64_t n)
{
    char tiles[4096];
    const int64_t rows = n / stage->block_q, cols = n / stage->block_k;
    const walked w = walk(n, stage->block_q, stage->block_k, tiles);
    report_heading("the tiles of N=%" PRId64 ", %" PRId64 " queries x %" PRId64
                   " keys each:  # full  / masked  . skipped",
                   n, stage->block_q, stage->block_k);
    puts("                    keys ->");
    for (int64_t r = 0; r < rows; r++)
        printf("  queries %4" PRId64 "..%-4" PRId64 "  %.*s\n", r * stage->block_q,
               (r + 1) * stage->block_q - 1, (int)cols, tiles + r * cols);
    printf("  %" PRId64 " full, %" PRId64 " masked, %" PRId64 " skipped\n", w.full, w.masked,
           w.skipped);
}

// R12: what the bound skips, and that the kernel did so.
static void skipped(const stage *stage, int threads)
{
    enum { N = 2048 };
    const char *const headings[] = {"tile",    "computed", "of them masked",
                                    "skipped", "share",    "(B-1)/(2B)"};
    report_heading("R12  tiles skipped, N=2048 (Exact, section 7)");
    table *t = table_new(6, headings);
    for (int64_t block = 128; block <= 512; block *= 2) {
        const walked w = walk(N, block, block, NULL);
        const int64_t computed = w.full + w.masked, side = N / block;
        table_cell(t, "%" PRId64 " x %" PRId64, block, block);
        table_cell(t, "%" PRId64, computed);
        table_cell(t, "%" PRId64, w.masked);
        table_cell(t, "%" PRId64, w.skipped);
        table_cell(t, "%.1f%%", 100.0 * (double)w.skipped / (double)(computed + w.skipped));
        table_cell(t, "%.1f%%", 100.0 * (double)(side - 1) / (double)(2 * side));
    }
    table_print(t);

    attention_counters ran = {0};
    if (record(stage, 1, N, true, threads, &ran) != ATTENTION_OK) {
        report_verdict(false, "%s", status_message());
        return;
    }
    int64_t formula = 0;
    for (int64_t end = stage->block_q; end < N + stage->block_q; end += stage->block_q)
        formula += ((end < N ? end : N) - 1) / stage->block_k + 1;
    report_verdict(ran.tiles == formula,
                   "the kernel that ran, %" PRId64 " x %" PRId64 ", counted %" PRId64
                   " tiles; the sum over\n      query tiles of ceil(min(N, (i+1) block_q) / "
                   "block_k) is %" PRId64,
                   stage->block_q, stage->block_k, ran.tiles, formula);
}

// R13: the arithmetic and the traffic of R10 and R11 with the bound.
static void saved(void)
{
    enum { HEADS = 8, DIM = 64, BLOCK = 128 };
    const char *const headings[] = {"seq",     "naive FLOPs", "tiled",       "ratio",
                                    "traffic", "reduction",   "K/V re-reads"};
    report_heading("R13  causal, 8 heads, D=64, fp32, tiles of 128 x 128 (Exact, section 8)");
    table *t = table_new(7, headings);
    for (int64_t n = 512; n <= 4096; n *= 2) {
        const walked w = walk(n, BLOCK, BLOCK, NULL);
        const double scores = (double)(w.full + w.masked) * BLOCK * BLOCK, all = (double)(n * n);
        const double tensor = 4.0 * HEADS * DIM * (double)n,
                     kv = tensor / (double)n * (double)w.keys;
        const double naive = 4 * tensor + 16.0 * HEADS * all, tiled = 2 * tensor + 2 * kv;
        table_cell(t, "%" PRId64, n);
        table_cell(t, "%.1f G", 1e-9 * 4 * HEADS * DIM * all);
        table_cell(t, "%.1f G", 1e-9 * 4 * HEADS * DIM * scores);
        table_cell(t, "%.2fx", scores / all);
        table_cell(t, "%.0f MiB", tiled / 0x1p20);
        table_cell(t, "%.1fx", naive / tiled);
        table_cell(t, "%.1fx", kv / tensor);
    }
    table_print(t);
    puts("  FLOPs as executed, walked by the kernel's bound; useful FLOPs, from which\n"
         "  throughput is counted, are those of the lower triangle alone");
}

// Skipping is not an approximation, and not even another order of sums.
static void same_bits(const stage *stage, int threads)
{
    stage_run run = {.args = attention_args_default(1, 2, 513, 64), .amp = 1};
    run.args.dtype = DTYPE_FP16;
    run.args.causal = true;
    run.args.block_q = stage->block_q;
    run.args.block_k = stage->block_k;
    run.args.threads = threads;
    float *before = NULL;
    attention_status status = stage_run_inputs(&run);
    if (status == ATTENTION_OK) status = tensor_new("o", 1, 2, 513, 64, &before);
    if (status == ATTENTION_OK)
        status = stage->previous(run.q, run.k, run.v, before, NULL, &run.args);
    if (status == ATTENTION_OK)
        status = stage->forward(run.q, run.k, run.v, run.o, NULL, &run.args);
    puts("");
    const tensor_difference apart = status == ATTENTION_OK
                                        ? tensor_compare(before, run.o, (int64_t)2 * 513 * 64)
                                        : (tensor_difference){0};
    if (status != ATTENTION_OK)
        report_verdict(false, "%s", status_message());
    else
        report_verdict(apart.max_abs == 0 && apart.non_finite == 0,
                       "stage 4's output is stage 3's, bit for bit (N=513, causal)");
    tensor_free(before);
    stage_run_free(&run);
}

static void times(const stage *stage, int threads)
{
    const char *const headings[] = {"causal", "stage 3 ms", "stage 4 ms", "stage 4 TFLOP/s",
                                    "stage 3 / stage 4"};
    report_heading("times, B=1 H=16 fp16, causal, medians of 20 by events");
    table *t = table_new(5, headings);
    for (int i = 0; i < 8; i++) {
        stage_run run = {.args = attention_args_default(1, 16, 1024 << i % 4, i < 4 ? 64 : 128),
                         .amp = 1};
        run.args.dtype = DTYPE_FP16;
        run.args.causal = true;
        run.args.block_q = stage->block_q;
        run.args.block_k = stage->block_k;
        run.args.threads = threads;
        timing_result before = {0}, after = {0};
        int64_t extra;
        attention_status status = stage_run_inputs(&run);
        if (status == ATTENTION_OK)
            status = gpu_device_time(stage->previous_kernel->gpu.device, run.q, run.k, run.v,
                                     &run.args, 3, 20, &before, &extra);
        if (status == ATTENTION_OK)
            status = gpu_device_time(stage->build->device, run.q, run.k, run.v, &run.args, 3, 20,
                                     &after, &extra);
        if (status != ATTENTION_OK) report_verdict(false, "%s", status_message());
        table_cell(t, "D=%" PRId64 " N=%" PRId64, run.args.head_dim, run.args.seq);
        table_cell(t, "%.3f", 1e3 * before.median);
        table_cell(t, "%.3f", 1e3 * after.median);
        table_cell(t, "%.1f", 1e-12 * attention_useful_flops(&run.args) / after.median);
        table_cell(t, "%.2f", before.median / after.median);
        stage_run_free(&run);
    }
    table_print(t);
}

attention_status write_tiles_csv(const char *path, int64_t n, int64_t block_q, int64_t block_k)
{
    char tiles[4096];
    output_file file;
    const attention_status status = output_file_open(&file, path);
    if (status != ATTENTION_OK) return status;
    walk(n, block_q, block_k, tiles);
    const char *tile = tiles;
    fputs("first_query,queries,first_key,keys,kind\n", file.stream);
    for (int64_t i = 0; i < n; i += block_q)
        for (int64_t j = 0; j < n; j += block_k, tile++)
            fprintf(file.stream, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%s\n", i, block_q,
                    j, block_k,
                    *tile == '#'   ? "full"
                    : *tile == '/' ? "masked"
                                   : "skipped");
    return output_file_commit(&file);
}

void print_receipts(const stage *stage, int threads)
{
    map(stage, 1024);
    skipped(stage, threads);
    saved();
    same_bits(stage, threads);
    if (stage->on_gpu) times(stage, threads);
}
