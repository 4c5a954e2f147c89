// case.h: one graded case: the options that say what is drawn, run and judged. The driver, which
// carries the submission, and the checker, which does not, read the same ones.
#ifndef CASE_H
#define CASE_H

#include "attention.h"

enum { PATH_TEXT = 512 };

typedef enum {
    INPUTS_NORMAL,     // as PyTorch draws them; q and k times amp
    INPUTS_RISING,     // scores that grow with the key
    INPUTS_FALLING,    // scores that fall, far below zero
    INPUTS_NEEDLE,     // the last key outweighs all others
    INPUTS_EQUAL,      // q = k = 0, v[j] = j
    INPUTS_MASKED,     // the first half of the keys scores -inf
    INPUTS_ALL_MASKED, // every key does
    INPUTS_INFINITE,   // one key scores +inf
    INPUTS_LAST_NAN,   // the last key and its v are NaN
    INPUTS_UPPER_HALF, // q and k are zero in the lower half of their dimensions
} case_inputs;

typedef struct {
    const char *dir; // where q.npy, k.npy, v.npy, o.npy, lse.npy and steps.csv are
    attention_args args;
    int64_t seed;
    double amp, v_amp;
    int inputs;    // case_inputs
    int64_t trace; // the row to trace, or -1
    int64_t rows;  // only the first rows are judged; 0: all
    int tiles;     // what the tally of tiles must be: CASE_TILES_*
    bool logits;   // not attention: the softmax of one row of logits, q [1, 1, seq, 1]
} graded_case;

enum { CASE_TILES_ANY, CASE_TILES_ALL, CASE_TILES_SEEN };

// Parses the options. ATTENTION_BAD_ARGUMENT with a sentence.
attention_status case_parse(graded_case *c, int argc, char **argv);

// dir/name in path, which it returns.
const char *case_path(const graded_case *c, const char *name, char path[PATH_TEXT]);

#endif
