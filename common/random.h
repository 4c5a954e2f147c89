// random.h: the stream of torch.manual_seed(seed); torch.randn(...) on the CPU.
//
// MT19937 seeded with a 32-bit integer; words masked to 24 bits and scaled by 2^-24 give uniforms;
// Box-Muller turns groups of 16 of them into normals. PyTorch takes another path for tensors of
// fewer than 16 elements, so those need not match it.
#ifndef RANDOM_H
#define RANDOM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    uint32_t state[624];
    int next;
} random_stream;

void random_seed(random_stream *r, uint32_t seed);
uint32_t random_word(random_stream *r);

// Fills x[count] with standard normals as torch.randn would for a tensor of that many elements.
void random_normal(random_stream *r, float *x, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
