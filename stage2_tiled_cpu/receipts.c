// receipts.c: R7 to R11b. What they leave out of the algorithm on purpose is in variants.c.
#include "receipts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "matmul.h"
#include "output_file.h"
#include "progress.h"
#include "report.h"
#include "stage_run.h"
#include "stages.h"
#include "tensor.h"
#include "util.h"
#include "variants.h"

// Drops the receipt, with the reason, when the machine cannot run it: that is a failure too.
static bool ready(attention_status status)
{
    if (status != ATTENTION_OK) report_verdict(false, "%s", status_message());
    return status == ATTENTION_OK;
}

static attention_status forward_with(stage_run *run, attention_function *f, float *o,
                                     int64_t block_q, int64_t block_k)
{
    run->args.block_q = block_q;
    run->args.block_k = block_k;
    return f(run->q, run->k, run->v, o, NULL, &run->args);
}

// Largest difference; infinite if either side is not finite, so that two NaN do not agree.
static double difference_between(const float *x, const float *y, int64_t count)
{
    const tensor_difference d = tensor_compare(x, y, count);
    return d.non_finite > 0 ? INFINITY : d.max_abs;
}

// R7: the same function as stage 0, whatever the tile.
static void exactness(stage_run *run, float *exact, int64_t count)
{
    static const int64_t tiles[][2] = {{64, 64}, {128, 128}, {256, 512}};
    const char *const headings[] = {"tile (q x k)", "causal off", "causal on"};
    report_heading("R7  exact: stage 2 against stage 0, B=2 H=4 N=1024 D=64 (Exact, section 5)");
    double difference[3][2], most = 0;
    for (int causal = 0; causal < 2; causal++) {
        run->args.causal = causal;
        if (!ready(forward_with(run, attention_forward_stage0, exact, 128, 128))) return;
        for (int t = 0; t < 3; t++) {
            if (!ready(forward_with(run, attention_forward, run->o, tiles[t][0], tiles[t][1])))
                return;
            difference[t][causal] = difference_between(run->o, exact, count);
            most = fmax(most, difference[t][causal]);
        }
    }
    table *t = table_new(3, headings);
    for (int i = 0; i < 3; i++) {
        table_cell(t, "%" PRId64 " x %" PRId64, tiles[i][0], tiles[i][1]);
        table_cell(t, "%.3e", difference[i][0]);
        table_cell(t, "%.3e", difference[i][1]);
    }
    table_print(t);
    report_verdict(most <= 2e-6, "largest difference %.1e, at most 2e-06 for every tile", most);
}

// R8 and R8b: what is not exact, on the same tensors, causal.
static void inexactness(stage_run *run, float *exact, int64_t count)
{
    run->args.causal = true;
    if (!ready(forward_with(run, attention_forward_stage0, exact, 128, 128)) ||
        !ready(forward_with(run, attention_forward, run->o, 128, 128)))
        return;
    const double tiled = difference_between(run->o, exact, count);

    const char *const headings[] = {"method", "max difference", "times stage 2's"};
    report_heading("R8  what an approximation costs: same inputs, causal (Exact, section 5)");
    table *t = table_new(3, headings);
    table_cell(t, "stage 2, tiles of 128 x 128");
    table_cell(t, "%.3e", tiled);
    table_cell(t, "1");
    for (int64_t window = 256; window >= 64; window /= 4) {
        attention_sliding_window(run->q, run->k, run->v, run->o, &run->args, window);
        const double difference = difference_between(run->o, exact, count);
        table_cell(t, "sliding window, w = %" PRId64, window);
        table_cell(t, "%.4f", difference);
        table_cell(t, "%.1e", difference / tiled);
    }
    table_print(t);
    report_verdict(tiled <= 2e-6, "stage 2 is within 2e-06, the windows are not in its class");

    const char *const left_out[] = {"left out", "max difference", "mean difference", "finite"};
    report_heading(
        "R8b  leave out a rescale: a plausible result, quietly wrong (Exact, section 4)");
    t = table_new(4, left_out);
    for (int variant = 0; variant < 3; variant++) {
        attention_without_rescale(run->q, run->k, run->v, run->o, &run->args, variant != 1,
                                  variant != 2);
        const tensor_difference d = tensor_compare(run->o, exact, count);
        table_cell(t, "%s",
                   variant == 0   ? "nothing"
                   : variant == 1 ? "acc x correction"
                                  : "l x correction");
        table_cell(t, "%.4f", d.max_abs);
        table_cell(t, "%.4f", d.mean_abs);
        table_cell(t, "%s", d.non_finite == 0 ? "all" : "no");
    }
    table_print(t);
}

static const int64_t lengths[] = {512, 1024, 2048, 4096};
enum { LENGTHS = 4, HEADS = 8, DIM = 64 };

typedef struct {
    attention_counters naive, tiled;
    int64_t naive_scratch, tiled_scratch;
} measurement;

static attention_status measure(measurement *m, int64_t seq, int64_t block_q, bool naive,
                                int threads)
{
    stage_run run = {.args = attention_args_default(1, HEADS, seq, DIM), .amp = 1};
    run.args.threads = threads;
    run.args.block_q = block_q;
    attention_status status = stage_run_inputs(&run);
    const int64_t before = tensor_bytes();
    if (status == ATTENTION_OK) {
        tensor_reset_peak();
        run.args.counters = &m->tiled;
        status = attention_forward(run.q, run.k, run.v, run.o, run.lse, &run.args);
        m->tiled_scratch = tensor_peak_bytes() - before;
    }
    if (status == ATTENTION_OK && naive) {
        tensor_reset_peak();
        run.args.counters = &m->naive;
        status = attention_forward_stage0(run.q, run.k, run.v, run.o, run.lse, &run.args);
        m->naive_scratch = tensor_peak_bytes() - before;
    }
    stage_run_free(&run);
    return status;
}

// R9: what is held does not grow.
static void memory(const measurement m[LENGTHS], int threads)
{
    attention_args shape = attention_args_default(1, HEADS, 512, DIM);
    shape.threads = threads;
    const char *const headings[] = {"seq", "stage 0 allocated", "one tile, 8 heads",
                                    "stage 2 allocated"};
    report_heading("R9  memory: 8 heads, fp32, tiles of 128 x 128 (Exact, section 6)");
    table *t = table_new(4, headings);
    for (int i = 0; i < LENGTHS; i++) {
        table_cell(t, "%" PRId64, lengths[i]);
        table_cell(t, "%.1f MiB", (double)m[i].naive_scratch / 0x1p20);
        table_cell(t, "%.1f MiB", HEADS * 128.0 * 128 * 4 / 0x1p20);
        table_cell(t, "%.2f MiB", (double)m[i].tiled_scratch / 0x1p20);
    }
    table_print(t);
    printf("  stage 2 holds one tile of scores and one of output a thread, and has %d\n",
           attention_threads(&shape));
    report_verdict(m[0].tiled_scratch == m[LENGTHS - 1].tiled_scratch,
                   "8x the sequence takes not a byte more");
}

// R10: the arithmetic is the same to the digit; the score traffic is gone.
static void arithmetic(const measurement m[LENGTHS])
{
    const char *const headings[] = {"seq",   "naive FLOPs",         "tiled FLOPs",
                                    "ratio", "naive score traffic", "tiled"};
    report_heading(
        "R10  arithmetic and score traffic: 8 heads, D=64, causal off (Exact, section 8)");
    table *t = table_new(6, headings);
    bool equal = true;
    for (int i = 0; i < LENGTHS; i++) {
        table_cell(t, "%" PRId64, lengths[i]);
        table_cell(t, "%.1f G", 1e-9 * (double)m[i].naive.flops);
        table_cell(t, "%.1f G", 1e-9 * (double)m[i].tiled.flops);
        table_cell(t, "%.2fx", (double)m[i].tiled.flops / (double)m[i].naive.flops);
        table_cell(t, "%.0f MiB", (double)m[i].naive.score_bytes / 0x1p20);
        table_cell(t, "%.0f MiB", (double)m[i].tiled.score_bytes / 0x1p20);
        equal &= m[i].tiled.flops == m[i].naive.flops;
    }
    table_print(t);
    report_verdict(equal, "not one multiply saved: the tallies are equal");
}

// R11: everything that crosses, and what block_q does to it.
static void traffic(const measurement m[LENGTHS], int threads)
{
    const char *const headings[] = {"seq", "naive", "tiled", "reduction", "K/V re-reads"};
    report_heading("R11  every tensor that crosses main memory, causal off (Exact, section 8)");
    table *t = table_new(5, headings);
    for (int i = 0; i < LENGTHS; i++) {
        const double naive = (double)(m[i].naive.bytes + m[i].naive.score_bytes);
        const double tiled = (double)m[i].tiled.bytes,
                     tensor = 4.0 * HEADS * DIM * (double)lengths[i];
        table_cell(t, "%" PRId64, lengths[i]);
        table_cell(t, "%.0f MiB", naive / 0x1p20);
        table_cell(t, "%.0f MiB", tiled / 0x1p20);
        table_cell(t, "%.1fx", naive / tiled);
        table_cell(t, "%.0fx", (tiled - 2 * tensor) / (2 * tensor)); // all but q and o is k and v
    }
    table_print(t);

    const char *const tiles[] = {"block_q", "tiled", "reduction", "2 block_q / D"};
    const double naive = (double)(m[LENGTHS - 1].naive.bytes + m[LENGTHS - 1].naive.score_bytes);
    puts("\n  at 4096, by the height of the query tile");
    t = table_new(4, tiles);
    for (int64_t block_q = 64; block_q <= 256; block_q *= 2) {
        measurement one;
        if (!ready(measure(&one, 4096, block_q, false, threads))) break;
        table_cell(t, "%" PRId64, block_q);
        table_cell(t, "%.0f MiB", (double)one.tiled.bytes / 0x1p20);
        table_cell(t, "%.1fx", naive / (double)one.tiled.bytes);
        table_cell(t, "%.1f", 2.0 * (double)block_q / DIM);
    }
    table_print(t);
    puts("  bytes the loops ask for: caches may serve a part of them");
}

// R11b: P from q, k and lse, a tile at a time, against stage 0's P.
static void rebuilt(int threads)
{
    enum { SEQ = 512, BLOCK = 128 };
    stage_run run = {.args = attention_args_default(1, HEADS, SEQ, DIM), .amp = 1};
    run.args.threads = threads;
    float *p = NULL, tile[BLOCK * BLOCK];
    double most = 0;
    report_heading("R11b  backward needs no stored P: N=512, 8 heads (Exact, section 8)");
    attention_status status = stage_run_inputs(&run);
    if (status == ATTENTION_OK) status = tensor_new("P", 1, HEADS, SEQ, SEQ, &p);
    run.args.p_out = p;
    if (status == ATTENTION_OK)
        status = attention_forward_stage0(run.q, run.k, run.v, run.o, NULL, &run.args);
    run.args.p_out = NULL;
    if (status == ATTENTION_OK)
        status = attention_forward(run.q, run.k, run.v, run.o, run.lse, &run.args);
    for (int64_t bh = 0; bh < HEADS && status == ATTENTION_OK; bh++)
        for (int64_t i = 0; i < SEQ; i += BLOCK)
            for (int64_t j = 0; j < SEQ; j += BLOCK) {
                matmul_abt(tile, BLOCK, run.q + (bh * SEQ + i) * DIM, DIM,
                           run.k + (bh * SEQ + j) * DIM, DIM, BLOCK, BLOCK, DIM, run.args.scale);
                for (int64_t r = 0; r < BLOCK; r++) {
                    row_exp_sum(tile + r * BLOCK, tile + r * BLOCK, run.lse[bh * SEQ + i + r],
                                BLOCK);
                    most = fmax(most, difference_between(tile + r * BLOCK,
                                                         p + (bh * SEQ + i + r) * SEQ + j, BLOCK));
                }
            }
    tensor_free(p);
    stage_run_free(&run);
    if (!ready(status)) return;
    report_verdict(most <= 1e-6, "exp(scale q k - lse), tile by tile, is stage 0's P within %.1e",
                   most);
}

attention_status write_traffic_csv(const char *path, int threads)
{
    measurement m[LENGTHS];
    output_file file;
    attention_status status = output_file_open(&file, path);
    if (status != ATTENTION_OK) return status;
    fputs("seq,naive_flops,tiled_flops,naive_bytes,tiled_bytes\n", file.stream);
    for (int i = 0; i < LENGTHS && status == ATTENTION_OK; i++) {
        status = measure(&m[i], lengths[i], 128, true, threads);
        fprintf(file.stream, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "\n",
                lengths[i], m[i].naive.flops, m[i].tiled.flops,
                m[i].naive.bytes + m[i].naive.score_bytes,
                m[i].tiled.bytes + m[i].tiled.score_bytes);
    }
    if (status == ATTENTION_OK) return output_file_commit(&file);
    output_file_discard(&file);
    return status;
}

void print_receipts(const stage *stage, int threads)
{
    (void)stage;
    stage_run run = {.args = attention_args_default(2, 4, 1024, 64), .amp = 1};
    run.args.threads = threads;
    const int64_t count = (int64_t)2 * 4 * 1024 * 64;
    float *exact = NULL;
    attention_status status = stage_run_inputs(&run);
    if (status == ATTENTION_OK) status = tensor_new("o of stage 0", 2, 4, 1024, 64, &exact);
    if (ready(status)) {
        exactness(&run, exact, count);
        inexactness(&run, exact, count);
    }
    tensor_free(exact);
    stage_run_free(&run);

    measurement m[LENGTHS];
    for (int i = 0; i < LENGTHS; i++) {
        progress("R9 to R11", i, LENGTHS);
        if (!ready(measure(&m[i], lengths[i], 128, true, threads))) return;
    }
    progress_done();
    memory(m, threads);
    arithmetic(m);
    traffic(m, threads);
    rebuilt(threads);
}
