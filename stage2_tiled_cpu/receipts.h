// receipts.h: what ./stage2/run prints: R7 to R11b.
#ifndef RECEIPTS_H
#define RECEIPTS_H

#include "stage.h"

void print_receipts(const stage *stage, int threads);

// Writes the tallies of R10 and R11, a length a line, for the figure.
attention_status write_traffic_csv(const char *path, int threads);

#endif
