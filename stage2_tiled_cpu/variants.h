// variants.h: attention with something left out, for the receipts to compare with. Not exact, not
// fast, and not part of any stage.
#ifndef VARIANTS_H
#define VARIANTS_H

#include "attention.h"

// Sliding-window attention: query i sees keys i - window + 1 .. i. Tensors as attention_forward's.
void attention_sliding_window(const float *q, const float *k, const float *v, float *o,
                              const attention_args *args, int64_t window);

// Online softmax over blocks of args->block_k keys, with the rescale of acc or of l left out.
void attention_without_rescale(const float *q, const float *k, const float *v, float *o,
                               const attention_args *args, bool rescale_acc, bool rescale_l);

#endif
