// report.h: what a stage prints: headings, aligned tables, verdicts that decide the exit code.
#ifndef REPORT_H
#define REPORT_H

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

// A table whose columns are as wide as they need to be; the first is left-aligned, the others
// right-aligned. Cells are added row by row, left to right.
typedef struct table table;
table *table_new(int columns, const char *const headings[]);
void table_cell(table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Prints it on stdout, indented by two, and frees it. A last row that is short is padded.
void table_print(table *t);
// Writes it as CSV instead (the headings as given, cells unquoted) and does not free it.
void table_write_csv(const table *t, FILE *stream);
void table_free(table *t);

// "R7  exactness ..." with a blank line before it.
void report_heading(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Prints "  ok: ..." or "  FAILED: ..." and remembers a failure.
void report_verdict(bool ok, const char *format, ...) __attribute__((format(printf, 2, 3)));

// 0, or 1 once any verdict has failed.
int report_exit_code(void);

#ifdef __cplusplus
}
#endif
#endif
