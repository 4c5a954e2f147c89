// half.h: fp16 and bf16 to and from float, round to nearest even, in integer arithmetic.
#ifndef HALF_H
#define HALF_H

#include <stdint.h>

#include "attention.h"

#ifdef __cplusplus
extern "C" {
#endif

// Bit patterns of IEEE binary16 (1-5-10) and bfloat16 (1-8-7). Overflow gives infinity, NaN
// stays NaN, fp16 subnormals are kept.
uint16_t fp16_from_float(float x);
float fp16_to_float(uint16_t bits);
uint16_t bf16_from_float(float x);
float bf16_to_float(uint16_t bits);

// x rounded to the nearest value of the type; fp32 returns x. Inline for fp32's sake: a call per
// element of O kept its divisions out of vectors, 8% of stage 2's time at N = 512.
float dtype_round_16(float x, attention_dtype dtype);
static inline float dtype_round(float x, attention_dtype dtype)
{
    return dtype == DTYPE_FP32 ? x : dtype_round_16(x, dtype);
}

// Bytes of an element: 4, 2, 2.
int dtype_size(attention_dtype dtype);

// The largest finite value, and the unit roundoff (half the spacing at 1): 2^-24, 2^-11, 2^-8.
double dtype_max(attention_dtype dtype);
double dtype_unit_roundoff(attention_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
