// tensor.h: memory for row-major float tensors: sizes that cannot wrap, allocation that says no
// before the machine does, a tally of what is held, and comparison that NaN cannot pass.
#ifndef TENSOR_H
#define TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

// Elements of a [d0, d1, d2, d3] tensor in *count. ATTENTION_BAD_ARGUMENT if an extent is below
// 1; ATTENTION_NO_MEMORY, naming the bytes of `name` in fp32, if they do not fit in 63 bits.
attention_status tensor_count(const char *name, int64_t d0, int64_t d1, int64_t d2, int64_t d3,
                              int64_t *count);

// Allocates a [d0, d1, d2, d3] float tensor, 64-byte aligned, uninitialised, in *tensor.
// ATTENTION_NO_MEMORY, before anything is touched, if it exceeds what the machine, its control
// group or its limits leave: the sentence names `name`, its shape and its bytes.
// *tensor is NULL on failure.
attention_status tensor_new(const char *name, int64_t d0, int64_t d1, int64_t d2, int64_t d3,
                            float **tensor);

// Whether `bytes` more would fit, by the same rule as tensor_new.
attention_status tensor_fits(const char *name, int64_t bytes);

// Frees what tensor_new gave; NULL is fine.
void tensor_free(float *tensor);

// Bytes held in tensors now, and the most held since tensor_reset_peak.
int64_t tensor_bytes(void);
int64_t tensor_peak_bytes(void);
void tensor_reset_peak(void);

// x against y, element by element. An element counts as different if either is NaN and the other
// is not, or if they are unequal infinities; then max_abs is infinite.
typedef struct {
    double max_abs, mean_abs;
    int64_t worst;      // flat index of the largest difference
    int64_t non_finite; // elements of x that are NaN or infinite
} tensor_difference;
tensor_difference tensor_compare(const float *x, const float *y, int64_t count);

// "512.0 MiB" style, binary units, in buffer; returns buffer.
const char *format_bytes(double bytes, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif
#endif
