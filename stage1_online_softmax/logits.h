// logits.h: a list of logits as people type it.
#ifndef LOGITS_H
#define LOGITS_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

// Parses text [size]: numbers with white space or one comma between, `inf`, `-inf` and `nan` in any
// case among them; a comma may end the list. *logits [*count] is from tensor_new.
// ATTENTION_BAD_ARGUMENT, naming the position (counted from 1) and what stands there, for anything
// else, for a number beyond fp32 and for an empty list; ATTENTION_NO_MEMORY.
attention_status logits_parse(const char *text, size_t size, float **logits, int64_t *count);

// The same from a string, or from standard input if it is "-".
attention_status logits_read(const char *list, float **logits, int64_t *count);

#endif
