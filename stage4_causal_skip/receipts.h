// receipts.h: what ./stage4/run prints: R12 and R13.
#ifndef RECEIPTS_H
#define RECEIPTS_H

#include "stage.h"

void print_receipts(const stage *stage, int threads);

// Writes the map of N = 1024, a tile a line, for the figure.
attention_status write_tiles_csv(const char *path, int64_t n, int64_t block_q, int64_t block_k);

#endif
