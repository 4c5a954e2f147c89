// receipts.h: what ./stage0/run prints: R5, R5b and R6.
#ifndef RECEIPTS_H
#define RECEIPTS_H

#include "stage.h"

void print_receipts(const stage *stage, int threads);

// Whether S and P of this shape would fit in memory; the sentence names the bytes.
attention_status scratch_fits(const attention_args *args);

#endif
