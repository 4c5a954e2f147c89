// stage.h: the driver that every stage's main.c hands over to.
#ifndef STAGE_H
#define STAGE_H

#include "attention.h"
#include "options.h"
#include "stages.h"

typedef struct stage {
    const char *name;  // "stage 2"
    const char *title; // its idea, in a line
    attention_function *forward;
    const char *previous_name; // the stage before, or NULL
    attention_function *previous;
    const char *baseline_name; // what --bench compares with, or NULL
    attention_function *baseline;
    int64_t block_q, block_k; // default tile, see attention_block_k
    // Refuses, before any input is drawn, a shape whose scratch cannot fit; may be NULL.
    attention_status (*scratch_fits)(const attention_args *args);
    // Prints the stage's receipts; verdicts go through report.h.
    void (*receipts)(const struct stage *stage, int threads);
    const option *options; // options of this stage alone
    int option_count;
    // Called after parsing: may do the stage's own job and set *done; may be NULL. `alone` is
    // whether nothing but the stage's own options (and --block-k, --threads) was given. *block_k
    // is --block-k or 0, and may be set.
    attention_status (*own_job)(bool alone, int64_t *block_k, bool *done);
    bool saves_p; // offers --p-out

    // A CUDA stage has these instead of forward, block_q and block_k, which the driver then fills
    // from the kernel that --kernel names and the device that --device takes.
    const stage_kernel *kernels; // the first is the default
    int kernel_count;
    const stage_kernel *previous_kernel; // the stage before, if it is a CUDA stage; also --bench's
                                         // baseline
    // Filled by the driver: the kernel that runs, which build of it, and where.
    const stage_kernel *kernel;
    const kernel_build *build;
    bool on_gpu;
} stage;

// Parses the command line, runs what it asks for, returns the process's exit code.
int stage_main(const stage *stage, int argc, char **argv);

#endif
