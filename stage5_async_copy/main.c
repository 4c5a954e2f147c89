// Stage 5 as a program: ./stage5/run prints its receipts; ./stage5/run --help lists the rest.
#include "receipts.h"
#include "stage.h"
#include "stages.h"

int main(int argc, char **argv)
{
    const stage_kernel kernels[] = {STAGE5_TENSOR}, before = STAGE4_TENSOR;
    const stage stage5 = {
        .name = "stage 5",
        .title = "loads hide behind the arithmetic",
        .kernels = kernels,
        .kernel_count = 1,
        .previous_name = "stage 4",
        .previous_kernel = &before,
        .receipts = print_receipts,
    };
    return stage_main(&stage5, argc, argv);
}
