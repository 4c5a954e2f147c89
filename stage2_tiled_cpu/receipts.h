// receipts.h: what ./stage2/run prints: R7 to R11b.
#ifndef RECEIPTS_H
#define RECEIPTS_H

#include "stage.h"

void print_receipts(const stage *stage, int threads);

#endif
