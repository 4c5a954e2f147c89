// receipts.h: what ./stage4/run prints: R12 and R13.
#ifndef RECEIPTS_H
#define RECEIPTS_H

#include "stage.h"

void print_receipts(const stage *stage, int threads);

#endif
