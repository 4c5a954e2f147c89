#include "random.h"

#include <math.h>

enum { WORDS = 624, MIDDLE = 397, GROUP = 16 };

void random_seed(random_stream *r, uint32_t seed)
{
    r->state[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++) {
        const uint32_t before = r->state[i - 1];
        r->state[i] = 1812433253u * (before ^ before >> 30) + i;
    }
    r->next = WORDS;
}

// Matsumoto and Nishimura 1998: the next 624 words, in place.
static void refill(random_stream *r)
{
    uint32_t *s = r->state;
    for (int i = 0; i < WORDS; i++) {
        const uint32_t mixed = (s[i] & 0x80000000u) | (s[(i + 1) % WORDS] & 0x7fffffffu);
        s[i] = s[(i + MIDDLE) % WORDS] ^ mixed >> 1 ^ (mixed & 1 ? 0x9908b0dfu : 0);
    }
    r->next = 0;
}

uint32_t random_word(random_stream *r)
{
    if (r->next == WORDS) refill(r);
    uint32_t y = r->state[r->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

static float uniform(random_stream *r)
{
    return (float)(random_word(r) & 0xffffff) * 0x1p-24f;
}

// Box-Muller on 16 uniforms: the first eight give radii, the last eight angles.
static void transform_group(float *x)
{
    for (int j = 0; j < GROUP / 2; j++) {
        const float radius = sqrtf(-2.0f * logf(1.0f - x[j]));
        const float angle = 2.0f * (float)M_PI * x[j + GROUP / 2];
        x[j] = radius * cosf(angle);
        x[j + GROUP / 2] = radius * sinf(angle);
    }
}

void random_normal(random_stream *r, float *x, int64_t count)
{
    if (count < GROUP) { // not PyTorch's path: the head of one group
        float group[GROUP];
        for (int i = 0; i < GROUP; i++) group[i] = uniform(r);
        transform_group(group);
        for (int64_t i = 0; i < count; i++) x[i] = group[i];
        return;
    }
    for (int64_t i = 0; i < count; i++) x[i] = uniform(r);
    for (int64_t i = 0; i + GROUP <= count; i += GROUP) transform_group(x + i);
    if (count % GROUP != 0) { // the last 16 elements are drawn anew
        float *last = x + count - GROUP;
        for (int i = 0; i < GROUP; i++) last[i] = uniform(r);
        transform_group(last);
    }
}
