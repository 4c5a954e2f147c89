// stage_run.h: one run of a stage: its inputs, and what can be asked of it. For stage.c.
#ifndef STAGE_RUN_H
#define STAGE_RUN_H

#include "stage.h"

typedef struct {
    attention_args args;
    int64_t seed;
    double amp;
    const char *q_path, *k_path, *v_path; // .npy, or NULL for random inputs
    int rank;                             // of the .npy files: 2 or 4
    float *q, *k, *v, *o, *lse;
} stage_run;

// Reads the shapes of the files, where files are given, into run->args. `extent_given` says which
// of batch, heads, seq and head_dim the command line set: a contradiction is refused.
attention_status stage_run_shape(stage_run *run, const bool extent_given[4]);

// Allocates all tensors, then reads the files or draws q, k, v as PyTorch would (q and k times
// amp), rounded to the type.
attention_status stage_run_inputs(stage_run *run);
void stage_run_free(stage_run *run);

// The same call of the stage before, whose kernel may be compiled for another tile.
attention_args stage_previous_args(const stage *stage, const attention_args *args);

// Each prints a table on stdout; csv, when not NULL, names a file that gets it too.
attention_status stage_run_summary(stage_run *run, const stage *stage);
attention_status stage_run_check(stage_run *run, const stage *stage, const char *csv);
attention_status stage_run_bench(stage_run *run, const stage *stage, const char *csv);
attention_status stage_run_trace(stage_run *run, const stage *stage, int64_t row, const char *csv);

#endif
