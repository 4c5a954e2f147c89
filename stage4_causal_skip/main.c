// Stage 4 as a program: ./stage4/run prints its receipts; ./stage4/run --help lists the rest.
#include "receipts.h"
#include "stage.h"
#include "stages.h"

static const char *tiles_csv;

static const option own_options[] = {
    {"tiles-csv", "FILE", "the map of the tiles of N=1024, for the figure", OPTION_TEXT, &tiles_csv,
     0, 0, 0, 0},
};

static attention_status own_job(bool alone, int64_t *block_k, bool *done)
{
    (void)block_k;
    *done = tiles_csv;
    if (!tiles_csv) return ATTENTION_OK;
    if (!alone)
        return status_fail(ATTENTION_BAD_ARGUMENT,
                           "--tiles-csv stands alone: no shape, no --check");
    return write_tiles_csv(tiles_csv, 1024, 128, 64);
}

int main(int argc, char **argv)
{
    const stage_kernel kernels[] = {STAGE4_TENSOR}, before = STAGE3_TENSOR;
    const stage stage4 = {
        .name = "stage 4",
        .title = "tiles in the future are never visited",
        .kernels = kernels,
        .kernel_count = 1,
        .previous_name = "stage 3",
        .previous_kernel = &before,
        .receipts = print_receipts,
        .options = own_options,
        .option_count = sizeof own_options / sizeof *own_options,
        .own_job = own_job,
    };
    return stage_main(&stage4, argc, argv);
}
