// receipts.h: what ./stage3/run prints: R14, memory, and on a GPU the times.
#ifndef RECEIPTS_H
#define RECEIPTS_H

#include "stage.h"

void print_receipts(const stage *stage, int threads);

#endif
