// Stage 3 as a program: ./stage3/run prints its receipts; ./stage3/run --help lists the rest.
#include "receipts.h"
#include "stage.h"
#include "stages.h"

int main(int argc, char **argv)
{
    const stage_kernel kernels[] = {STAGE3_TENSOR, STAGE3_SCALAR};
    const stage stage3 = {
        .name = "stage 3",
        .title = "tiles fused into one CUDA kernel",
        .kernels = kernels,
        .kernel_count = 2,
        .previous_name = "stage 2",
        .previous = attention_forward_stage2,
        .baseline_name = "stage 2",
        .baseline = attention_forward_stage2,
        .receipts = print_receipts,
    };
    return stage_main(&stage3, argc, argv);
}
