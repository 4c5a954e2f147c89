// stages.h: the entry points of the stages, as the Makefile renames them so that several can be
// linked into one program (-Dattention_forward=attention_forward_stage2, and so on).
#ifndef STAGES_H
#define STAGES_H

#include "attention.h"

#ifdef __cplusplus
extern "C" {
#endif

attention_function attention_forward_stage0, attention_forward_stage1, attention_forward_stage2;

#ifdef __cplusplus
}
#endif
#endif
