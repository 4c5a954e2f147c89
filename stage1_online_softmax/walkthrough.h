// walkthrough.h: the rebase of one row of logits, printed so that it can be redone by hand.
#ifndef WALKTHROUGH_H
#define WALKTHROUGH_H

#include <stdint.h>

#include "status.h"

// Streams x [n] through online_softmax in blocks and prints every step's arithmetic with `digits`
// decimals, then the checks. Prints only; returns ATTENTION_NO_MEMORY if that runs out.
attention_status walkthrough_print(const float *x, int64_t n, int64_t block, int digits);

// One row a term: block,index,logit,m_old,m_new,correction,l_before,l_rebased,term,l_after.
attention_status walkthrough_trace_csv(const char *path, const float *x, int64_t n, int64_t block);

// One row a block: block,block_max,m_old,m_new,correction,raised.
attention_status walkthrough_rescale_csv(const char *path, const float *x, int64_t n,
                                         int64_t block);

#endif
