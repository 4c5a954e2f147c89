// Stage 6 as a program: ./stage6/run prints its receipts; ./stage6/run --help lists the rest.
#include "receipts.h"
#include "stage.h"
#include "stages.h"

int main(int argc, char **argv)
{
    const stage_kernel kernels[] = {STAGE6_WGMMA}, before = STAGE5_TENSOR;
    const stage stage6 = {
        .name = "stage 6",
        .title = "the engines of compute capability 9.0",
        .kernels = kernels,
        .kernel_count = 1,
        .previous_name = "stage 5",
        .previous_kernel = &before,
        .receipts = print_receipts,
    };
    return stage_main(&stage6, argc, argv);
}
