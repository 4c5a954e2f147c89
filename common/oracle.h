// oracle.h: attention in float64, in another shape than any stage, and the rule by which a
// stage's output is judged.
#ifndef ORACLE_H
#define ORACLE_H

#include "attention.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    double o[HEAD_DIM_MAX];     // exact output of the row
    double bound[HEAD_DIM_MAX]; // largest error allowed in each element
    double lse;                 // exact, natural logarithm
} oracle_row;

// Exact attention of query row i of plane bh (batch x heads, flat). scratch is [seq] doubles.
void oracle_compute_row(oracle_row *row, double *scratch, const float *q, const float *k,
                        const float *v, const attention_args *args, int64_t bh, int64_t i);

typedef struct {
    int64_t rows_checked, rows; // rows looked at, of how many; all of them up to N = 2048
    int64_t failed;             // elements (of o and lse) outside the bound
    int64_t first_failed;       // flat index into o of the first, or -1 (lse: its row's o[0])
    double max_abs, mean_abs;   // error of o; the mean where the exact value is finite
    double max_ratio;           // largest error over its bound
    double rounding_mean_abs;   // mean error of merely rounding the exact o to the type
    double lse_max;             // largest error of lse over max(1, |lse|)
} oracle_report;

// Judges o and lse (lse may be NULL). An element passes if it is within half a unit of the exact
// value in the output type, plus one rounding unit of the input type times sum of p|v|/l, plus
// fp32 slack; where the exact value is not finite both must be alike. lse passes within
// 2e-6 x max(1, |lse|). ATTENTION_NO_MEMORY if scratch does not fit.
attention_status oracle_check(oracle_report *report, const float *q, const float *k, const float *v,
                              const float *o, const float *lse, const attention_args *args);

#ifdef __cplusplus
}
#endif
#endif
