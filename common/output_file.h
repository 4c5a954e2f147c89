// output_file.h: files that are complete or absent.
#ifndef OUTPUT_FILE_H
#define OUTPUT_FILE_H

#include <stdio.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    FILE *stream;  // write here
    char *path;    // the name it will have
    char *scratch; // the name it has until then; NULL for a pipe or a device
} output_file;

// Opens a temporary file beside `path` (or `path` itself where it is not a regular file).
// ATTENTION_BAD_FILE if that cannot be done.
attention_status output_file_open(output_file *file, const char *path);

// Flushes, closes and renames into place; on any error (a full disk among them) removes the
// temporary file and returns ATTENTION_WRITE_FAILED.
attention_status output_file_commit(output_file *file);

// Closes and removes the temporary file.
void output_file_discard(output_file *file);

// ATTENTION_WRITE_FAILED if something printed to stdout was lost; call at the end of main.
attention_status stdout_flush(void);

#ifdef __cplusplus
}
#endif
#endif
