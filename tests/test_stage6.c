// Stage 6 in the emulator.
#include "cuda_support.h"

#define SUITE            stage6
#define STAGE            attention_forward_stage6_emulated
#define TRACED           attention_forward_stage6_emulated_traced
#define PREVIOUS         attention_forward_stage5_emulated
#define BLOCK_Q          64
#define BLOCK_ROWS       128
#define BLOCK_K          128
#define PREVIOUS_BLOCK_Q 128
#define PREVIOUS_BLOCK_K STAGE5_BLOCK_K
#define SKIPS            true
#include "cuda_stage.h"
