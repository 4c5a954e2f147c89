#include "report.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS_MAX = 32, CELL_MAX = 96 };

struct table {
    int columns;
    int cells, capacity; // headings are the first row
    char (*text)[CELL_MAX];
};

static int failures;

static void add_cell(table *t, const char *format, va_list list)
{
    if (t->cells == t->capacity) {
        const int capacity = t->capacity ? 2 * t->capacity : 64;
        void *text = realloc(t->text, (size_t)capacity * sizeof *t->text);
        if (!text) {
            fputs("out of memory for a table\n", stderr);
            exit(3);
        }
        t->text = text;
        t->capacity = capacity;
    }
    vsnprintf(t->text[t->cells++], CELL_MAX, format, list);
}

void table_cell(table *t, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    add_cell(t, format, list);
    va_end(list);
}

table *table_new(int columns, const char *const headings[])
{
    table *t = calloc(1, sizeof *t);
    if (!t || columns > COLUMNS_MAX) {
        fputs("out of memory for a table\n", stderr);
        exit(3);
    }
    t->columns = columns;
    for (int c = 0; c < columns; c++) table_cell(t, "%s", headings[c]);
    return t;
}

void table_print(table *t)
{
    int width[COLUMNS_MAX] = {0}, total = 2;
    while (t->cells % t->columns != 0) table_cell(t, "%s", "");
    for (int i = 0; i < t->cells; i++) {
        const int length = (int)strlen(t->text[i]);
        if (length > width[i % t->columns]) width[i % t->columns] = length;
    }
    for (int c = 0; c < t->columns; c++) total += width[c] + 2;

    for (int i = 0; i < t->cells; i++) {
        const int c = i % t->columns, last = c == t->columns - 1;
        if (c == 0 && t->columns == 1)
            printf("  %s", t->text[i]);
        else if (c == 0)
            printf("  %-*s", width[c], t->text[i]);
        else
            printf("  %*s", width[c], t->text[i]);
        if (last) putchar('\n');
        if (i == t->columns - 1) { // a rule under the headings
            fputs("  ", stdout);
            for (int x = 2; x < total - 2; x++) putchar('-');
            putchar('\n');
        }
    }
    table_free(t);
}

void table_write_csv(const table *t, FILE *stream)
{
    for (int i = 0; i < t->cells; i++)
        fprintf(stream, "%s%c", t->text[i], i % t->columns == t->columns - 1 ? '\n' : ',');
}

void table_free(table *t)
{
    free(t->text);
    free(t);
}

void report_heading(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    putchar('\n');
    vprintf(format, list);
    putchar('\n');
    va_end(list);
}

void report_verdict(bool ok, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs(ok ? "  ok: " : "  FAILED: ", stdout);
    vprintf(format, list);
    putchar('\n');
    va_end(list);
    if (!ok) failures++;
}

int report_exit_code(void)
{
    return failures > 0;
}
