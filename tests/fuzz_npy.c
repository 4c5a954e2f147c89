// fuzz_npy.c: libFuzzer on npy_parse_header: no input may make it read past its end, and what it
// accepts must hold together. Built with -fsanitize=fuzzer,address,undefined by clang; run for a
// minute with
//     fuzz_npy -max_total_time=60 -max_len=512
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition) abort();
}

// The message is one printable line that begins with the file's name and says something.
static void check_message(const char *message)
{
    require(strncmp(message, "x.npy: ", 7) == 0 && strlen(message) > 15);
    for (; *message; message++) require(*message >= ' ' && *message < 127);
}

static void check_header(const npy_header *header, size_t size)
{
    int64_t count = 1, bytes;
    require(header->rank >= 1 && header->rank <= NPY_RANK_MAX);
    for (int i = 0; i < NPY_RANK_MAX; i++) {
        require(header->shape[i] >= 1 && (i < header->rank || header->shape[i] == 1));
        require(!__builtin_mul_overflow(count, header->shape[i], &count));
    }
    require(count == header->count);
    require(header->type[0] == 'f' && strchr("248", header->type[1]) && header->type[1]);
    require(header->type[2] == '\0');
    require(!__builtin_mul_overflow(count, header->type[1] - '0', &bytes));
    require(header->data_offset <= size && header->data_offset > 10);
    require(!__builtin_add_overflow(bytes, (int64_t)header->data_offset, &bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    npy_header header;
    const attention_status status = npy_parse_header("x.npy", data, size, &header);
    if (status == ATTENTION_OK) {
        check_header(&header, size);
    } else {
        require(status == ATTENTION_BAD_FILE);
        check_message(status_message());
    }
    return 0;
}
