// util.h: the two one-liners C leaves out, for host and device.
#ifndef UTIL_H
#define UTIL_H

#include <stdint.h>

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

HOST_DEVICE static inline int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

HOST_DEVICE static inline int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
