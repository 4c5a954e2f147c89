#include "logits.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tensor.h"

enum { TOKEN_MAX = 4096 }; // no number worth typing is longer

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static attention_status refuse(size_t position, const char *token, size_t length, const char *why)
{
    char shown[28] = "";
    for (size_t i = 0; i < length && i < 24; i++) {
        shown[i] = token[i];
        if (token[i] == '\0') shown[i] = '?';
    }
    if (length > 24) strcat(shown, "...");
    return status_fail(ATTENTION_BAD_ARGUMENT, "logits, character %zu: '%s' %s", position + 1,
                       shown, why);
}

// One number, the whole of token [length].
static attention_status parse_number(const char *token, size_t length, size_t position, float *x)
{
    char text[TOKEN_MAX], *end;
    if (length >= sizeof text || memchr(token, '\0', length))
        return refuse(position, token, length, "is not a number");
    memcpy(text, token, length);
    text[length] = '\0';

    const char *digits = text + (*text == '-' || *text == '+');
    if (strcasecmp(digits, "inf") == 0 || strcasecmp(digits, "nan") == 0) {
        const float value = strcasecmp(digits, "inf") == 0 ? INFINITY : NAN;
        *x = *text == '-' ? -value : value;
        return ATTENTION_OK;
    }
    if (strspn(digits, "0123456789.eE+-") != strlen(digits)) // no hexadecimal, no infinity()
        return refuse(position, token, length, "is not a number");
    errno = 0;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0') return refuse(position, token, length, "is not a number");
    if (isinf((float)value)) return refuse(position, token, length, "is beyond fp32");
    *x = (float)value;
    return ATTENTION_OK;
}

// Walks the list; stores into logits unless it is NULL, and always counts.
static attention_status walk(const char *text, size_t size, float *logits, int64_t *count)
{
    bool comma = true; // a number may follow; set at the start so that ",1" is refused
    size_t i = 0;
    *count = 0;
    for (;;) {
        while (i < size && is_space(text[i])) i++;
        if (i == size) break;
        if (text[i] == ',') {
            if (comma) return refuse(i, text + i, 1, "where a number should stand");
            comma = true;
            i++;
            continue;
        }
        const size_t start = i;
        while (i < size && !is_space(text[i]) && text[i] != ',') i++;
        float x = 0;
        const attention_status status = parse_number(text + start, i - start, start, &x);
        if (status != ATTENTION_OK) return status;
        if (logits) logits[*count] = x;
        (*count)++;
        comma = false;
    }
    if (*count == 0)
        return status_fail(ATTENTION_BAD_ARGUMENT, "logits: the list is empty; numbers with "
                                                   "commas or white space between are allowed");
    return ATTENTION_OK;
}

attention_status logits_parse(const char *text, size_t size, float **logits, int64_t *count)
{
    *logits = NULL;
    attention_status status = walk(text, size, NULL, count);
    if (status == ATTENTION_OK) status = tensor_new("logits", 1, 1, 1, *count, logits);
    if (status == ATTENTION_OK) status = walk(text, size, *logits, count);
    return status;
}

static attention_status read_all(FILE *stream, char **text, size_t *size)
{
    size_t capacity = 1 << 16;
    *size = 0;
    *text = malloc(capacity);
    while (*text && !feof(stream) && !ferror(stream)) {
        if (*size == capacity) {
            char *larger = realloc(*text, capacity *= 2);
            if (!larger) free(*text);
            *text = larger;
            if (!larger) break;
        }
        *size += fread(*text + *size, 1, capacity - *size, stream);
    }
    if (!*text) return status_fail(ATTENTION_NO_MEMORY, "logits: no memory for standard input");
    if (ferror(stream)) {
        free(*text);
        return status_fail(ATTENTION_BAD_FILE, "logits: standard input cannot be read");
    }
    return ATTENTION_OK;
}

attention_status logits_read(const char *list, float **logits, int64_t *count)
{
    if (strcmp(list, "-") != 0) return logits_parse(list, strlen(list), logits, count);
    char *text;
    size_t size;
    attention_status status = read_all(stdin, &text, &size);
    if (status != ATTENTION_OK) return status;
    status = logits_parse(text, size, logits, count);
    free(text);
    return status;
}
