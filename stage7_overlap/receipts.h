// receipts.h: what ./stage7/run prints.
#ifndef RECEIPTS_H
#define RECEIPTS_H

#include "stage.h"

void print_receipts(const stage *stage, int threads);

#endif
