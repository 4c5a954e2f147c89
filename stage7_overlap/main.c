// Stage 7 as a program: ./stage7/run prints its receipts; ./stage7/run --help lists the rest.
#include "receipts.h"
#include "stage.h"
#include "stages.h"

int main(int argc, char **argv)
{
    const stage_kernel kernels[] = {STAGE7_WGMMA}, before = STAGE6_WGMMA;
    const stage stage7 = {
        .name = "stage 7",
        .title = "softmax hides behind the products",
        .kernels = kernels,
        .kernel_count = 1,
        .previous_name = "stage 6",
        .previous_kernel = &before,
        .receipts = print_receipts,
    };
    return stage_main(&stage7, argc, argv);
}
