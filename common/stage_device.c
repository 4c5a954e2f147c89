#include "stage_device.h"

#include <stdio.h>

#include "attention.h"
#include "gpu_device.h"

attention_status stage_device_choose(stage *stage, int kernel, stage_device device, int threads,
                                     char *where, size_t size)
{
    const stage_kernel *chosen = &stage->kernels[kernel];
    gpu_device gpu;
    attention_status found = device == DEVICE_CPU ? ATTENTION_NO_DEVICE : gpu_device_open(&gpu);
    if (found == ATTENTION_OK && chosen->only_on && chosen->only_on != gpu.compute_capability)
        found = status_fail(ATTENTION_NO_DEVICE,
                            "%s has compute capability %d.%d; this kernel's instructions are those "
                            "of %d.%d alone",
                            gpu.name, gpu.compute_capability / 10, gpu.compute_capability % 10,
                            chosen->only_on / 10, chosen->only_on % 10);
    if (device == DEVICE_GPU && found != ATTENTION_OK) return found;
    stage->on_gpu = found == ATTENTION_OK;
    stage->kernel = chosen;
    stage->build = stage->on_gpu ? &chosen->gpu : &chosen->emulated;
    stage->forward = stage->build->forward;
    stage->block_q = chosen->block_q;
    stage->block_k = chosen->block_k;
    if (stage->previous_kernel) {
        const stage_kernel *before = stage->previous_kernel;
        stage->previous = (stage->on_gpu ? before->gpu : before->emulated).forward;
        stage->baseline_name = stage->previous_name;
        stage->baseline = stage->previous;
    }
    const attention_args any = {.threads = threads};
    threads = attention_threads(&any);
    if (stage->on_gpu)
        snprintf(where, size, "(%s, GPU: %s, sm_%d)", chosen->name, gpu.name,
                 gpu.compute_capability);
    else
        snprintf(where, size, "(%s, emulator, %d thread%s)%s%s", chosen->name, threads,
                 threads == 1 ? "" : "s", device == DEVICE_CPU ? "" : "\nno GPU: ",
                 device == DEVICE_CPU ? "" : status_message());
    return ATTENTION_OK;
}
