// card.h: the figures of the NVIDIA card at hand, through the driver alone: no CUDA toolkit.
#ifndef CARD_H
#define CARD_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    char name[96];
    int multiprocessors;
    int64_t shared_bytes; // of one multiprocessor
    double bandwidth;     // of its memory by the data sheet's formula, bytes a second; 0: not told
} card;

// False if there is no driver or no card.
bool card_read(card *c);

#endif
