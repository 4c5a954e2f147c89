// receipts.c: the instructions of a tile, stage 6 against stage 5, and on a GPU how long both take.
#include "receipts.h"

#include <inttypes.h>

#include "report.h"
#include "stage_receipts.h"

// What block_q queries and block_k keys take. mma: 4096 FLOPs each, a warp's; wgmma: 64 x n x 16, a
// warpgroup's. ldmatrix and cp.async: 512 bytes a warp; a box: [block_k, 64], from one thread.
// Bytes that products read from shared memory: stage 5's warps have 32 rows, each with all of k and
// v and, at d = 128, with q again for every tile of keys; wgmma reads q, k and v once for 64 rows.
static void tile_work(const stage *stage)
{
    const char *const headings[] = {"",      "mma",   "ldmatrix", "cp.async",
                                    "bytes", "wgmma", "boxes",    "bytes"};
    const int64_t queries = stage->block_q, keys = stage->block_k;
    report_heading("%" PRId64 " queries x %" PRId64 " keys: stage 5, stage 6", queries, keys);
    table *t = table_new(8, headings);
    for (int64_t d = 64; d <= 128; d *= 2) {
        const int64_t warps = queries / 32, tile_bytes = 2 * keys * d;
        const int64_t keys_before = attention_block_k(stage->previous_kernel->block_k, d);
        const int64_t q_again = d == 128 ? 2 * queries * d * keys / keys_before : 0;
        table_cell(t, "D=%" PRId64, d);
        table_cell(t, "%" PRId64, 4 * queries * keys * d / 4096);
        table_cell(t, "%" PRId64, (warps * 2 * tile_bytes + q_again) / 512);
        table_cell(t, "%" PRId64, 2 * tile_bytes / 512);
        table_cell(t, "%" PRId64, warps * 2 * tile_bytes + q_again);
        table_cell(t, "%" PRId64, d / 16 + keys / 16);
        table_cell(t, "%" PRId64, 2 * d / 64);
        table_cell(t, "%" PRId64, 2 * tile_bytes + 2 * queries * d);
    }
    table_print(t);
}

void print_receipts(const stage *stage, int threads)
{
    tile_work(stage);
    receipt_against_previous(stage, threads);
    if (stage->on_gpu) receipt_times(stage, threads);
}
