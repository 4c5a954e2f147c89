// stage_receipts.h: receipts of a CUDA stage beside the stage before.
#ifndef STAGE_RECEIPTS_H
#define STAGE_RECEIPTS_H

#include "stage.h"

// The same function: every element by the rule of --check, and how far from the stage before.
void receipt_against_previous(const stage *stage, int threads);

// On a GPU: how long both take.
void receipt_times(const stage *stage, int threads);

#endif
