// Stage 2 as a program: ./stage2/run prints its receipts; ./stage2/run --help lists the rest.
#include "receipts.h"
#include "stage.h"
#include "stages.h"

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
    };
    return stage_main(&stage2, argc, argv);
}
