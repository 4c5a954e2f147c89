// status.h: how functions here report failure: a code to act on, a sentence to print.
#ifndef STATUS_H
#define STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    ATTENTION_OK = 0,
    ATTENTION_BAD_ARGUMENT,  // the caller asked for something that is not offered
    ATTENTION_BAD_FILE,      // a file is missing, malformed or not what it claims
    ATTENTION_NO_MEMORY,     // more bytes than there are, or than 64 bits can count
    ATTENTION_NO_DEVICE,     // no GPU, no driver, or not the one this was built for
    ATTENTION_WRITE_FAILED,  // the disk is full or the output went away
    ATTENTION_KERNEL_FAILED, // a kernel did something wrong: the emulator's findings come so
} attention_status;

// A few words for each code.
const char *status_string(attention_status status);

// Sets this thread's sentence (printf-style, no newline) and returns the code, so that a
// function can end with `return status_fail(...)`.
attention_status status_fail(attention_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// The sentence of this thread's last status_fail; "" if there was none.
const char *status_message(void);

// The process's exit code for a status: 0 fine, 1 a kernel failed, 2 bad input, 3 a
// resource is missing.
int status_exit_code(attention_status status);

// What stands in a handout where a student is to write (course/README.md): prints "not implemented
// yet: " and what, and ends the program with exit code 1.
void not_implemented(const char *what) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif
#endif
