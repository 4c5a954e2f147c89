// receipts.c: why softmax has to hide, stage 7 against stage 6, and on a GPU how long both take.
#include "receipts.h"

#include <inttypes.h>

#include "report.h"
#include "stage_receipts.h"

// The cycles of one multiprocessor of compute capability 9.0 for a tile: 4096 FLOPs of the tensor
// cores each, 16 exp2; and per element a maximum (64 a cycle), a multiply-add and a sum (128), half
// a conversion (64).
static void tile_cycles(const stage *stage)
{
    const char *const headings[] = {"",      "products", "exp2",  "max, sum, ...",
                                    "a sum", "largest",  "ratio", "share of peak"};
    report_heading("cycles for a tile of %" PRId64 " x %" PRId64
                   " scores, all behind one another or hidden",
                   stage->block_q, stage->block_k);
    table *t = table_new(8, headings);
    for (int64_t d = 64; d <= 128; d *= 2) {
        const int64_t elements = stage->block_q * stage->block_k;
        const int64_t products = 4 * elements * d / 4096, exp2 = elements / 16;
        const int64_t others = elements / 64 + 2 * elements / 128 + elements / 2 / 64;
        const int64_t sum = products + exp2 + others;
        const int64_t largest = products > exp2 ? products : exp2;
        table_cell(t, "D=%" PRId64, d);
        table_cell(t, "%" PRId64, products);
        table_cell(t, "%" PRId64, exp2);
        table_cell(t, "%" PRId64, others);
        table_cell(t, "%" PRId64, sum);
        table_cell(t, "%" PRId64, largest);
        table_cell(t, "%.2f", (double)sum / (double)largest);
        table_cell(t, "%.0f%%", 100.0 * (double)products / (double)sum);
    }
    table_print(t);
}

void print_receipts(const stage *stage, int threads)
{
    tile_cycles(stage);
    receipt_against_previous(stage, threads);
    if (stage->on_gpu) receipt_times(stage, threads);
}
