// cpu_methods.h: what is timed on the CPU. For bench.c.
#ifndef CPU_METHODS_H
#define CPU_METHODS_H

#include "row.h"

typedef struct {
    const char *name, *stage;
    int64_t block_q, block_k;
    int64_t longest; // the largest seq, 0 for any
    attention_function *forward;
} cpu_method;

extern const cpu_method cpu_methods[];
extern const int cpu_method_count;

// Fills what every CPU row has in common; threads as attention_args counts them.
void cpu_bench_open(bench_row *common, int threads);

// Checks against float64, then times, as gpu_bench_row does.
attention_status cpu_bench_row(const cpu_method *method, bench_row *row);

#endif
