// npy.h: NumPy's .npy files, read and written: float32, float16 and float64, C order,
// little-endian, format versions 1.0 to 3.0. bfloat16 has no .npy type and travels as float32.
// Format: numpy.lib.format in NumPy's manual.
#ifndef NPY_H
#define NPY_H

#include <stddef.h>
#include <stdint.h>

#include "attention.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { NPY_RANK_MAX = 4 };

typedef struct {
    int rank;                    // 1 to NPY_RANK_MAX
    int64_t shape[NPY_RANK_MAX]; // shape[0 .. rank - 1]
    int64_t count;               // product of the shape
    char type[4];                // "f2", "f4" or "f8"
    size_t data_offset;          // where the elements begin in the file
} npy_header;

// Parses the first `size` bytes of a file into *header. ATTENTION_BAD_FILE, with a sentence that
// starts with `name`, for anything that is not such a file.
attention_status npy_parse_header(const char *name, const unsigned char *bytes, size_t size,
                                  npy_header *header);

// Reads a file's header. ATTENTION_BAD_FILE as npy_read.
attention_status npy_read_header(const char *path, npy_header *header);

// Reads a whole file. *data is [count], from tensor_new; float64 is rounded to float.
// ATTENTION_BAD_FILE if it cannot be opened, is truncated or has bytes left over.
attention_status npy_read(const char *path, npy_header *header, float **data);

// Writes data [product of shape] as float16 if dtype is fp16, else as float32. The header is 128
// bytes. The file appears complete under its name, or not at all.
attention_status npy_write(const char *path, const float *data, int rank, const int64_t *shape,
                           attention_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
