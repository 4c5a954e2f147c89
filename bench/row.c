#include "row.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "output_file.h"

typedef enum { TEXT, INTEGER, REAL } column_kind;

// One table drives the writing and the reading.
static const struct {
    const char *name;
    column_kind kind;
    size_t offset;
} columns[] = {
#define COLUMN(kind, name)                                                                         \
    {                                                                                              \
#name, kind, offsetof(bench_row, name)                                                     \
    }
    COLUMN(TEXT, method),
    COLUMN(TEXT, stage),
    COLUMN(TEXT, device),
    COLUMN(TEXT, compute_capability),
    COLUMN(TEXT, driver),
    COLUMN(TEXT, runtime),
    COLUMN(TEXT, compiler),
    COLUMN(TEXT, commit),
    COLUMN(TEXT, dtype),
    COLUMN(INTEGER, batch),
    COLUMN(INTEGER, heads),
    COLUMN(INTEGER, seq),
    COLUMN(INTEGER, head_dim),
    COLUMN(INTEGER, causal),
    COLUMN(INTEGER, block_q),
    COLUMN(INTEGER, block_k),
    COLUMN(INTEGER, repeats),
    COLUMN(TEXT, cache),
    COLUMN(INTEGER, threads),
    COLUMN(REAL, ms_median),
    COLUMN(REAL, ms_min),
    COLUMN(REAL, ms_max),
    COLUMN(REAL, ms_first),
    COLUMN(REAL, ms_host),
    COLUMN(REAL, ms_graph),
    COLUMN(REAL, tflops),
    COLUMN(REAL, share_of_peak),
    COLUMN(REAL, peak_tflops),
    COLUMN(REAL, matmul_tflops),
    COLUMN(REAL, copy_gbs),
    COLUMN(REAL, ratio_to_sdpa_flash),
    COLUMN(REAL, ratio_to_sdpa_cudnn),
    COLUMN(REAL, peak_extra_mib),
    COLUMN(REAL, peak_extra_with_o_mib),
    COLUMN(INTEGER, launches),
    COLUMN(REAL, max_abs_err),
    COLUMN(TEXT, status),
#undef COLUMN
};
enum { COLUMNS = sizeof columns / sizeof *columns, LINE = 4096 };

static void *field(const bench_row *row, int c)
{
    return (char *)row + columns[c].offset;
}

attention_status rows_add(bench_rows *all, const bench_row *row)
{
    if (all->count == all->capacity) {
        const int64_t capacity = all->capacity ? 2 * all->capacity : 64;
        bench_row *rows = realloc(all->rows, (size_t)capacity * sizeof *rows);
        if (!rows) return status_fail(ATTENTION_NO_MEMORY, "no memory for the benchmark's rows");
        all->rows = rows;
        all->capacity = capacity;
    }
    all->rows[all->count++] = *row;
    return ATTENTION_OK;
}

static bool same_shape(const bench_row *a, const bench_row *b)
{
    return a->batch == b->batch && a->heads == b->heads && a->seq == b->seq &&
           a->head_dim == b->head_dim && a->causal == b->causal &&
           strcmp(a->device, b->device) == 0;
}

bench_row *rows_find(const bench_rows *all, const bench_row *key)
{
    for (int64_t i = 0; i < all->count; i++)
        if (same_shape(&all->rows[i], key) && strcmp(all->rows[i].method, key->method) == 0 &&
            strcmp(all->rows[i].dtype, key->dtype) == 0)
            return &all->rows[i];
    return NULL;
}

// A number as C's locale writes it: the decimal point of another is put right.
static void print_real(FILE *stream, double x)
{
    char text[64];
    if (isnan(x)) return; // an empty field
    snprintf(text, sizeof text, "%.6g", x);
    for (char *c = text; *c; c++)
        if (!strchr("0123456789+-einf", *c)) *c = '.';
    fputs(text, stream);
}

attention_status rows_write(const bench_rows *all, const char *path)
{
    output_file file;
    const attention_status status = output_file_open(&file, path);
    if (status != ATTENTION_OK) return status;
    for (int c = 0; c < COLUMNS; c++) fprintf(file.stream, "%s%s", c ? "," : "", columns[c].name);
    for (int64_t i = 0; i < all->count; i++)
        for (int c = 0; c < COLUMNS; c++) {
            const void *value = field(&all->rows[i], c);
            fputc(c ? ',' : '\n', file.stream);
            if (columns[c].kind == TEXT)
                fputs(value, file.stream);
            else if (columns[c].kind == INTEGER)
                fprintf(file.stream, "%" PRId64, *(const int64_t *)value);
            else
                print_real(file.stream, *(const double *)value);
        }
    fputc('\n', file.stream);
    return output_file_commit(&file);
}

// True if text is what the column may hold; stores it.
static bool set_field(bench_row *row, int c, const char *text)
{
    void *value = field(row, c);
    if (columns[c].kind == TEXT) {
        if (strlen(text) >= ROW_TEXT) return false;
        memcpy(value, text, strlen(text) + 1);
        return true;
    }
    if (columns[c].kind == INTEGER)
        return parse_integer(text, INT64_MIN + 1, INT64_MAX, (int64_t *)value);
    *(double *)value = NAN;
    return *text == '\0' || parse_real(text, (double *)value);
}

attention_status rows_read(bench_rows *all, const char *path)
{
    char line[LINE];
    FILE *file = fopen(path, "re");
    if (!file) return status_fail(ATTENTION_BAD_FILE, "%s: cannot be opened", path);
    attention_status status = ATTENTION_OK;
    for (int number = 1; status == ATTENTION_OK && fgets(line, sizeof line, file); number++) {
        bench_row row = {0};
        char *rest = line;
        bool good = line[strcspn(line, "\n")] == '\n';
        line[strcspn(line, "\n")] = '\0';
        for (int c = 0; c < COLUMNS && good; c++) {
            const char *text = strsep(&rest, ",");
            good = text &&
                   (number == 1 ? strcmp(text, columns[c].name) == 0 : set_field(&row, c, text));
            if (!good)
                status = status_fail(ATTENTION_BAD_FILE, "%s:%d: %s is '%s'", path, number,
                                     columns[c].name, text ? text : "missing");
        }
        if (status == ATTENTION_OK && (!good || rest))
            status =
                status_fail(ATTENTION_BAD_FILE, "%s:%d: has not %d fields", path, number, COLUMNS);
        if (status == ATTENTION_OK && number > 1) status = rows_add(all, &row);
    }
    fclose(file);
    return status;
}

static double ratio(const bench_rows *all, const bench_row *row, const char *peer)
{
    bench_row key = *row;
    snprintf(key.method, sizeof key.method, "%s", peer);
    snprintf(key.dtype, sizeof key.dtype, "fp16");
    const bench_row *found = rows_find(all, &key);
    if (!found || strcmp(found->status, "ok") != 0 || strcmp(row->status, "ok") != 0) return NAN;
    const bool graphs = !isnan(found->ms_graph) && !isnan(row->ms_graph);
    return graphs ? found->ms_graph / row->ms_graph : found->ms_median / row->ms_median;
}

void rows_fill_ratios(bench_rows *all)
{
    for (int64_t i = 0; i < all->count; i++) {
        all->rows[i].ratio_to_sdpa_flash = ratio(all, &all->rows[i], "sdpa_flash");
        all->rows[i].ratio_to_sdpa_cudnn = ratio(all, &all->rows[i], "sdpa_cudnn");
    }
}

void rows_free(bench_rows *all)
{
    free(all->rows);
    *all = (bench_rows){0};
}
