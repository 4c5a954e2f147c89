// fuzz_logits.c: libFuzzer on the list of logits; make fuzz. Findings become tests.
#include <stdlib.h>
#include <string.h>

#include "logits.h"
#include "tensor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    float *logits;
    int64_t count;
    const attention_status status = logits_parse((const char *)data, size, &logits, &count);
    if (status == ATTENTION_OK && (!logits || count < 1)) abort();
    if (status != ATTENTION_OK && (logits || strlen(status_message()) < 10)) abort();
    tensor_free(logits);
    return 0;
}
