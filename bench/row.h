// row.h: a row of the benchmark's CSV, written and read back.
#ifndef ROW_H
#define ROW_H

#include "attention.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ROW_TEXT = 64 };

// bench/README.md describes every column. A number that does not apply is NaN and an empty field.
typedef struct {
    char method[ROW_TEXT], stage[ROW_TEXT], device[ROW_TEXT], compute_capability[ROW_TEXT];
    char driver[ROW_TEXT], runtime[ROW_TEXT], compiler[ROW_TEXT], commit[ROW_TEXT];
    char dtype[ROW_TEXT];
    int64_t batch, heads, seq, head_dim, causal, block_q, block_k, repeats;
    char cache[ROW_TEXT];
    int64_t threads;
    double ms_median, ms_min, ms_max, ms_first, ms_host, ms_graph;
    double tflops, share_of_peak, peak_tflops, matmul_tflops, copy_gbs;
    double ratio_to_sdpa_flash, ratio_to_sdpa_cudnn;
    double peak_extra_mib, peak_extra_with_o_mib;
    int64_t launches;
    double max_abs_err;
    char status[ROW_TEXT]; // ok, oom, wrong, error
} bench_row;

typedef struct {
    bench_row *rows;
    int64_t count, capacity;
} bench_rows;

attention_status rows_add(bench_rows *all, const bench_row *row);

// The row of the same method and shape, or NULL.
bench_row *rows_find(const bench_rows *all, const bench_row *key);

// Writes the whole file, complete or absent; '.' is the decimal point under any locale.
attention_status rows_write(const bench_rows *all, const char *path);

// Reads what rows_write or bench/torch_sdpa.py wrote. ATTENTION_BAD_FILE, with the line, for
// anything else.
attention_status rows_read(bench_rows *all, const char *path);

// Fills ratio_to_sdpa_flash and _cudnn from the peers' rows of the same shape: their time over this
// row's, from device time (ms_graph where both have it), so that above 1 is faster than the peer.
void rows_fill_ratios(bench_rows *all);

void rows_free(bench_rows *all);

#ifdef __cplusplus
}
#endif
#endif
