// receipts.c: what a warp does for a tile, stage 5 against stage 4, and on a GPU how long both
// take.
#include "receipts.h"

#include <inttypes.h>

#include "report.h"
#include "stage_receipts.h"

// The kernel's shape in numbers: two products of 2 rows keys d FLOPs, 4096 an m16n8k16; k and v
// once, and at d = 128 q, 512 bytes an ldmatrix.x4; a score a lane and 32; 16 bytes a copy.
static void tile_work(const stage *stage)
{
    const char *const headings[] = {"keys",      "rows",        "mma",          "ldmatrix",
                                    "bytes/mma", "exp2 a lane", "copies a lane"};
    report_heading("what a warp does for a tile");
    table *t = table_new(7, headings);
    for (int64_t d = 64; d <= 128; d *= 2) {
        const int64_t warps = 4, rows = stage->block_q / warps;
        const int64_t keys = attention_block_k(stage->block_k, d), mma = rows * keys * d / 1024;
        const int64_t loads = keys * d / 128 + (d == 128 ? rows * d / 256 : 0);
        table_cell(t, "D=%" PRId64 ": %" PRId64, d, keys);
        table_cell(t, "%" PRId64, rows);
        table_cell(t, "%" PRId64, mma);
        table_cell(t, "%" PRId64, loads);
        table_cell(t, "%" PRId64, 512 * loads / mma);
        table_cell(t, "%" PRId64, rows * keys / 32);
        table_cell(t, "%" PRId64, 2 * keys * d * 2 / 16 / (32 * warps));
    }
    table_print(t);
}

void print_receipts(const stage *stage, int threads)
{
    tile_work(stage);
    receipt_against_previous(stage, threads);
    if (stage->on_gpu) receipt_times(stage, threads);
}
