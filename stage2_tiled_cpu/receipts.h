// receipts.h: what ./stage2/run prints: R7 to R11b.
#ifndef RECEIPTS_H
#define RECEIPTS_H

void print_receipts(int threads);

#endif
