// Stage 2 as a program: ./stage2/run prints its receipts; ./stage2/run --help lists the rest.
#include "receipts.h"
#include "stage.h"
#include "stages.h"

static const char *traffic_csv;

static const option own_options[] = {
    {"traffic-csv", "FILE", "the tallies of R10 and R11, for the figure", OPTION_TEXT, &traffic_csv,
     0, 0, 0, 0},
};

static attention_status own_job(bool alone, int64_t *block_k, bool *done)
{
    (void)block_k;
    *done = traffic_csv;
    if (!traffic_csv) return ATTENTION_OK;
    if (!alone)
        return status_fail(ATTENTION_BAD_ARGUMENT,
                           "--traffic-csv stands alone: no shape, no --check");
    return write_traffic_csv(traffic_csv, 0);
}

int main(int argc, char **argv)
{
    const stage stage2 = {
        .name = "stage 2",
        .title = "tiles of queries and keys",
        .forward = attention_forward,
        .previous_name = "stage 1",
        .previous = attention_forward_stage1,
        .baseline_name = "stage 0",
        .baseline = attention_forward_stage0,
        .block_q = 128,
        .block_k = 128,
        .receipts = print_receipts,
        .options = own_options,
        .option_count = sizeof own_options / sizeof *own_options,
        .own_job = own_job,
    };
    return stage_main(&stage2, argc, argv);
}
