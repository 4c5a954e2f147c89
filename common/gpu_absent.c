// gpu_absent.c: gpu_device.h for a program made without nvcc.
#include "gpu_device.h"

#include <stddef.h>

attention_status gpu_device_open(gpu_device *device)
{
    (void)device;
    return status_fail(ATTENTION_NO_DEVICE,
                       "this program was made without nvcc and has no GPU kernels");
}

attention_status gpu_device_time(attention_device_function *forward, const float *q, const float *k,
                                 const float *v, const attention_args *args, int warm_up,
                                 int repeats, timing_result *time, int64_t *extra_bytes)
{
    (void)forward, (void)q, (void)k, (void)v, (void)args, (void)warm_up, (void)repeats, (void)time;
    *extra_bytes = 0;
    return gpu_device_open(NULL);
}
