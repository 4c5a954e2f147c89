// Stage 0 as a program: ./stage0/run prints its receipts; ./stage0/run --help lists the rest.
#include "receipts.h"
#include "stage.h"

int main(int argc, char **argv)
{
    const stage stage0 = {
        .name = "stage 0",
        .title = "explicit attention, S and P in memory",
        .forward = attention_forward,
        .block_q = 128,
        .block_k = 128,
        .scratch_fits = scratch_fits,
        .receipts = print_receipts,
        .saves_p = true,
    };
    return stage_main(&stage0, argc, argv);
}
