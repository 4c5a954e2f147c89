// options.h: command lines: one table drives the parsing and --help.
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    OPTION_FLAG,    // value: bool *, set to true
    OPTION_INTEGER, // value: int64_t *, within least..most
    OPTION_REAL,    // value: double *, finite as a float
    OPTION_TEXT,    // value: const char **, not empty
    OPTION_CHOICE,  // value: int *, set to the index in choices
} option_kind;

typedef struct {
    const char *name;     // without the dashes
    const char *argument; // how --help writes the value: "N", "FILE"; NULL for a flag
    const char *help;
    option_kind kind;
    void *value;
    int64_t least, most;        // OPTION_INTEGER
    const char *const *choices; // OPTION_CHOICE, ends with NULL
    bool *given;                // set to true when the option appears; may be NULL
} option;

// Parses argv by the table. ATTENTION_BAD_ARGUMENT, with a sentence that names the option, for an
// unknown or ambiguous one, a missing value, a value that is not wholly a number or not within its
// limits, and anything that is not an option.
attention_status options_parse(const option *table, int count, int argc, char **argv);

// Prints one line an option on stdout.
void options_help(const option *table, int count);

// The whole of text as a decimal integer within least..most, or as a decimal number that is finite
// as a float: no white space, no sign where least is 0 or more, no overflow, no underflow. False if
// it is not; *value is then as it was.
bool parse_integer(const char *text, int64_t least, int64_t most, int64_t *value);
bool parse_real(const char *text, double *value);

#ifdef __cplusplus
}
#endif
#endif
