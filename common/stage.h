// stage.h: the driver that every stage's main.c hands over to.
#ifndef STAGE_H
#define STAGE_H

#include "attention.h"
#include "options.h"

typedef struct {
    const char *name;  // "stage 2"
    const char *title; // its idea, in a line
    attention_function *forward;
    const char *previous_name; // the stage before, or NULL
    attention_function *previous;
    const char *baseline_name; // what --bench compares with, or NULL
    attention_function *baseline;
    int64_t block_q, block_k; // default tile
    // Refuses, before any input is drawn, a shape whose scratch cannot fit; may be NULL.
    attention_status (*scratch_fits)(const attention_args *args);
    void (*receipts)(int threads); // prints the stage's receipts; verdicts go through report.h
    const option *options;         // options of this stage alone
    int option_count;
    // Called after parsing: may do the stage's own job and set *done; may be NULL. `alone` is
    // whether nothing but the stage's own options (and --block-k, --threads) was given. *block_k
    // is --block-k or 0, and may be set.
    attention_status (*own_job)(bool alone, int64_t *block_k, bool *done);
    bool saves_p; // offers --p-out
} stage;

// Parses the command line, runs what it asks for, returns the process's exit code.
int stage_main(const stage *stage, int argc, char **argv);

#endif
