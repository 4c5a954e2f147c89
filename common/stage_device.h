// stage_device.h: which kernel a CUDA stage runs, and where. For stage.c.
#ifndef STAGE_DEVICE_H
#define STAGE_DEVICE_H

#include <stddef.h>

#include "stage.h"

typedef enum { DEVICE_AUTO, DEVICE_GPU, DEVICE_CPU } stage_device;

// Fills stage->forward, block_q, block_k, build, on_gpu and, with a previous kernel, previous and
// baseline. DEVICE_AUTO takes the GPU if it can be used. where: for the first line of output,
// and a second one that says why there is no GPU. ATTENTION_NO_DEVICE if DEVICE_GPU was asked for
// and cannot be had.
attention_status stage_device_choose(stage *stage, int kernel, stage_device device, int threads,
                                     char *where, size_t size);

#endif
