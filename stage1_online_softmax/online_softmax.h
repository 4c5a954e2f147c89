// online_softmax.h: softmax of one row of logits, a block at a time.
#ifndef ONLINE_SOFTMAX_H
#define ONLINE_SOFTMAX_H

#include <stdint.h>

// What one block did to the running maximum and the running sum.
typedef struct {
    int64_t block, first, count; // block number; its logits are x[first .. first + count - 1]
    float m_old, m_new, base;    // base is m_new, or 0 while m_new is -inf
    float correction;            // exp(m_old - base)
    float l_before, l_rebased;   // l_rebased = l_before x correction
    float l_after;               // l_rebased + the sum of the block's terms
} online_step;

// Called after each block; terms [count] are exp(x - base) of the block's logits.
typedef void online_observer(void *context, const online_step *step, const float *terms);

// p[i] = softmax(x)[i] for a row x [n], taken in blocks of `block`; returns the log of the sum of
// exp(x). p [n] may not be x: each block's terms are measured against the maximum of its time, and
// p is taken from x again once the last is known. observe may be NULL. A row of nothing but -inf
// gives p = 0 and -inf; +inf or NaN among the logits gives NaN everywhere.
// Source: Milakov and Gimelshein 2018; Exact, section 2.
float online_softmax(float *p, const float *x, int64_t n, int64_t block, online_observer *observe,
                     void *context);

#endif
