#include "receipts.h"

#include <inttypes.h>
#include <stdio.h>

#include "card.h"
#include "progress.h"
#include "report.h"
#include "stage_run.h"
#include "tensor.h"

attention_status scratch_fits(const attention_args *args)
{
    int64_t count;
    const int64_t planes = args->batch * args->heads;
    const attention_status status =
        tensor_count("S and P", 2, planes, args->seq, args->seq, &count);
    if (status != ATTENTION_OK) return status;
    char label[128];
    snprintf(label, sizeof label, "S and P [2, %" PRId64 ", %" PRId64 ", %" PRId64 "]", planes,
             args->seq, args->seq);
    return tensor_fits(label, count * (int64_t)sizeof(float));
}

static double matrix_bytes(double heads, double seq, double element)
{
    return heads * seq * seq * element;
}

// R5: the score matrix by formula, and what a call really allocates.
static void score_matrix(int threads)
{
    const char *const headings[] = {"seq", "score matrix", "allocated for S and P", "of l"};
    report_heading("R5  the score matrix: 8 heads, fp32 (Exact, section 6)");
    table *t = table_new(4, headings);
    bool as_counted = true;
    for (int64_t seq = 512; seq <= 4096; seq *= 2) {
        stage_run run = {.args = attention_args_default(1, 8, seq, 64), .amp = 1};
        run.args.threads = threads;
        const double matrix = matrix_bytes(8, (double)seq, 4);
        table_cell(t, "%" PRId64, seq);
        table_cell(t, "%.1f MiB", matrix / 0x1p20);
        progress("R5", (int)(seq / 512), 8);
        attention_status status = scratch_fits(&run.args);
        if (status == ATTENTION_OK) status = stage_run_inputs(&run);
        const int64_t before = tensor_bytes();
        tensor_reset_peak();
        if (status == ATTENTION_OK)
            status = attention_forward(run.q, run.k, run.v, run.o, run.lse, &run.args);
        if (status == ATTENTION_OK) {
            const double l_bytes = 8.0 * (double)seq * 4;
            const double allocated = (double)(tensor_peak_bytes() - before) - l_bytes;
            table_cell(t, "%.1f MiB", allocated / 0x1p20);
            table_cell(t, "%.3f MiB", l_bytes / 0x1p20);
            as_counted &= allocated == 2 * matrix;
        } else {
            table_cell(t, "%s", status_string(status));
            table_cell(t, "-");
        }
        stage_run_free(&run);
    }
    progress_done();
    table_print(t);
    printf("  8x the sequence is %.0fx the matrix\n",
           matrix_bytes(8, 4096, 4) / matrix_bytes(8, 512, 4));
    report_verdict(as_counted, "S and P are both held, so every call took twice the matrix");

    const char *const wide[] = {"seq", "S", "S and P"};
    puts("\n  the same for 16 heads (Forward, part 1)");
    t = table_new(3, wide);
    for (int64_t seq = 1024; seq <= 8192; seq *= 2) {
        table_cell(t, "%" PRId64, seq);
        table_cell(t, "%.0f MiB", matrix_bytes(16, (double)seq, 4) / 0x1p20);
        table_cell(t, "%.0f MiB", 2 * matrix_bytes(16, (double)seq, 4) / 0x1p20);
    }
    table_print(t);
}

static void chip_rows(table *t, const char *chip, int multiprocessors, double shared_bytes,
                      double bandwidth)
{
    const double matrix = matrix_bytes(8, 8192, 4), on_chip = multiprocessors * shared_bytes;
    table_cell(t, "%s", chip);
    if (bandwidth > 0) {
        table_cell(t, "%.2f ms", 1e3 * matrix / bandwidth);
        table_cell(t, "%.2f ms", 4e3 * matrix / bandwidth);
    } else {
        table_cell(t, "not told");
        table_cell(t, "not told");
    }
    table_cell(t, "%.1f MB", on_chip / 1e6);
    table_cell(t, "%.2f%%", 100 * on_chip / matrix);
    table_cell(t, "%.3f%%", 100 * shared_bytes / matrix);
}

// R5b: the matrix against the memory beside the arithmetic.
static void on_chip(void)
{
    const char *const headings[] = {"card",    "one crossing",  "four crossings",
                                    "on chip", "of the matrix", "one SM of it"};
    char size[32];
    report_heading(
        "R5b  why it cannot stay on the chip: N = 8192, 8 heads, fp32 (Exact, section 1)");
    printf("  the matrix is %s\n", format_bytes(matrix_bytes(8, 8192, 4), size, sizeof size));
    table *t = table_new(6, headings);
    chip_rows(t, "A100", 108, 192e3, 2.0e12);
    card found;
    const bool any = card_read(&found);
    if (any)
        chip_rows(t, found.name, found.multiprocessors, (double)found.shared_bytes,
                  found.bandwidth);
    table_print(t);
    puts("  A100: 2.0 TB/s, 108 multiprocessors (SM) of 192 KB each");
    if (any)
        printf("  %s: %.2f TB/s, %d multiprocessors of %" PRId64
               " bytes each, as its driver says\n",
               found.name, found.bandwidth / 1e12, found.multiprocessors, found.shared_bytes);
    printf("  a tile of 128 x 128 in fp32 is %s a head, %.2f of 192 KB\n",
           format_bytes(128.0 * 128 * 4, size, sizeof size), 128.0 * 128 * 4 / 192e3);
}

// R6: the formula where no machine here can follow.
static void extrapolated(void)
{
    const char *const headings[] = {"seq", "8 heads, fp32", "32 heads, bf16"};
    report_heading("R6  extrapolated: one layer's score matrix (Exact, section 6)");
    table *t = table_new(3, headings);
    const int64_t lengths[] = {8192, 16384, 32768, 131072};
    for (int i = 0; i < 4; i++) {
        table_cell(t, "%" PRId64, lengths[i]);
        table_cell(t, "%.1f GiB", matrix_bytes(8, (double)lengths[i], 4) / 0x1p30);
        table_cell(t, "%.1f GiB", matrix_bytes(32, (double)lengths[i], 2) / 0x1p30);
    }
    table_print(t);
    // Llama 3.1 8B: 32 layers, 8 key/value heads of 128, keys and values, 2 bytes.
    const double scores = matrix_bytes(32, 131072, 2), cache = 32.0 * 8 * 128 * 2 * 2 * 131072;
    puts("  32 heads in bf16 is the shape of Llama 3.1 8B");
    printf("  at 131072: %.1f GiB, about %.0f cards of 80e9 bytes\n", scores / 0x1p30,
           scores / 80e9);
    printf("  its K/V cache at that length: %.0f GiB a user, 1/%.0f of those scores;\n"
           "  tiling removes the scores and does nothing for the cache\n",
           cache / 0x1p30, scores / cache);
}

void print_receipts(const stage *stage, int threads)
{
    (void)stage;
    score_matrix(threads);
    on_chip();
    extrapolated();
}
