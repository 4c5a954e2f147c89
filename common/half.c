#include "half.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

uint16_t fp16_from_float(float x)
{
    const uint32_t bits = bits_of(x);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const uint32_t magnitude = bits & 0x7fffffff;

    if (magnitude > 0x7f800000) return sign | 0x7e00;  // NaN
    if (magnitude >= 0x477ff000) return sign | 0x7c00; // 65520 and more round to infinity
    if (magnitude < 0x38800000) {
        // Below 2^-14: the result counts units of 2^-24. Adding 2^-1 * 2^0 = 0.5 aligns the
        // float's last place with that unit, so the addition itself rounds to nearest even.
        return sign | (uint16_t)(bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f));
    }
    // Rebias the exponent by 127 - 15 and round away 13 bits; a carry runs into the exponent.
    const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return sign | (uint16_t)((rounded - ((127 - 15) << 23)) >> 13);
}

float fp16_to_float(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    const uint32_t magnitude = bits & 0x7fff;
    if (magnitude >= 0x7c00) return float_of(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    if (magnitude < 0x400) return float_of(sign | bits_of((float)magnitude * 0x1p-24f));
    return float_of(sign | ((magnitude << 13) + ((127 - 15) << 23)));
}

uint16_t bf16_from_float(float x)
{
    const uint32_t bits = bits_of(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40); // keep it NaN
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float bf16_to_float(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

float dtype_round_16(float x, attention_dtype dtype)
{
    return dtype == DTYPE_FP16 ? fp16_to_float(fp16_from_float(x))
                               : bf16_to_float(bf16_from_float(x));
}

int dtype_size(attention_dtype dtype)
{
    return dtype == DTYPE_FP32 ? 4 : 2;
}

double dtype_max(attention_dtype dtype)
{
    return dtype == DTYPE_FP16 ? 65504.0 : dtype == DTYPE_BF16 ? 0x1.fep127 : 0x1.fffffep127;
}

double dtype_unit_roundoff(attention_dtype dtype)
{
    return dtype == DTYPE_FP16 ? 0x1p-11 : dtype == DTYPE_BF16 ? 0x1p-8 : 0x1p-24;
}

const char *dtype_name(attention_dtype dtype)
{
    return dtype == DTYPE_FP16 ? "fp16" : dtype == DTYPE_BF16 ? "bf16" : "fp32";
}
