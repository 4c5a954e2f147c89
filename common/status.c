#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static _Thread_local char message[8192]; // longer than any path and a sentence about it

const char *status_string(attention_status status)
{
    switch (status) {
    case ATTENTION_OK: return "no error";
    case ATTENTION_BAD_ARGUMENT: return "bad argument";
    case ATTENTION_BAD_FILE: return "bad file";
    case ATTENTION_NO_MEMORY: return "not enough memory";
    case ATTENTION_NO_DEVICE: return "no usable device";
    case ATTENTION_WRITE_FAILED: return "write failed";
    case ATTENTION_KERNEL_FAILED: return "a kernel failed";
    }
    return "unknown status";
}

attention_status status_fail(attention_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    // A path may hold anything; a sentence stays one line.
    for (char *c = message; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
    return status;
}

const char *status_message(void)
{
    return message;
}

int status_exit_code(attention_status status)
{
    switch (status) {
    case ATTENTION_OK: return 0;
    case ATTENTION_BAD_ARGUMENT:
    case ATTENTION_BAD_FILE: return 2;
    case ATTENTION_NO_MEMORY:
    case ATTENTION_NO_DEVICE:
    case ATTENTION_WRITE_FAILED: return 3;
    case ATTENTION_KERNEL_FAILED: return 1;
    }
    return 1;
}

void not_implemented(const char *what)
{
    fflush(stdout);
    fprintf(stderr, "not implemented yet: %s\n", what);
    _exit(1); // from any thread, and from a fiber of the emulator
}
