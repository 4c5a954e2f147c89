// receipts.h: what ./stage1/run prints: R1 to R4b; and the row of R2, for --rescale-csv.
#ifndef RECEIPTS_H
#define RECEIPTS_H

#include "stage.h"

#include <stdint.h>

#include "status.h"

void print_receipts(const stage *stage, int threads);

// Writes the data of R2's figure: its first row, a block of logits (64 if block is 0) a line.
attention_status write_rescale_csv(const char *path, int64_t block);

#endif
