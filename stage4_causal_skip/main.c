// Stage 4 as a program: ./stage4/run prints its receipts; ./stage4/run --help lists the rest.
#include "receipts.h"
#include "stage.h"
#include "stages.h"

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
    };
    return stage_main(&stage4, argc, argv);
}
