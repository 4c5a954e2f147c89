#include "walkthrough.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "matmul.h"
#include "online_softmax.h"
#include "output_file.h"
#include "tensor.h"
#include "util.h"

enum {
    LINE = 80,
    TERMS_SHOWN = 6,
    HEAD = 4,
    BLOCKS_SHOWN = 3,
    P_SHOWN = 12,
    BAR = 60,
    CUTS = 16,
    TEXT = 64, // -FLT_MAX with 9 decimals takes 50
    LONG_TEXT = 192
};

typedef struct {
    const float *x; // [n]
    int64_t n, blocks;
    int digits;
    int64_t left_out;  // blocks not shown since the last one that was; their m stands still,
    float left_factor; // so they share one correction: 1, 0 at m = -inf, nan at +inf
    bool residual;     // some line's printed digits give another last digit
    online_step check; // the step the one-multiply check looks at
    online_step last;
} walk;

// A logit as it was typed: the shortest decimal that is this float, without an exponent up to 10^7.
static const char *plain(float x, char *text)
{
    if (isnan(x)) return "nan";
    int digits = 1; // before the point
    for (float y = fabsf(x); y >= 10 && digits < 7; y /= 10) digits++;
    for (int precision = digits; precision <= 9; precision++) {
        snprintf(text, TEXT, "%.*g", precision, (double)x);
        float back;
        if (sscanf(text, "%f", &back) == 1 && back == x) break;
    }
    return text;
}

static const char *fixed(double x, int digits, char *text)
{
    if (isnan(x)) return "nan";
    snprintf(text, TEXT, "%.*f", digits, x);
    return text;
}

// x in units of the last printed digit, as printed.
static double units(double x, int digits)
{
    char text[TEXT];
    double value = 0;
    sscanf(fixed(x, digits, text), "%lf", &value);
    return nearbyint(value * pow(10, digits));
}

// Terms of a sum, joined by " + " and wrapped within the line.
typedef struct {
    int column, terms;
} sum_line;

static void put_term(sum_line *line, const char *text)
{
    const int length = (int)strlen(text) + (line->terms > 0 ? 3 : 0);
    if (line->column + length > LINE && line->terms > 0) {
        printf("\n      + %s", text);
        line->column = 8 + (int)strlen(text);
    } else {
        printf("%s%s", line->terms > 0 ? " + " : "", text);
        line->column += length;
    }
    line->terms++;
}

static bool elided(const online_step *step, int64_t i)
{
    return step->count > TERMS_SHOWN && i >= HEAD && i < step->count - 1;
}

// l = exp(0.4 - 0.9) + ..., the block's own terms by name.
static void put_names(sum_line *line, const walk *w, const online_step *step)
{
    char logit[TEXT], base[TEXT], text[LONG_TEXT];
    for (int64_t i = 0; i < step->count; i++) {
        if (elided(step, i)) {
            snprintf(text, sizeof text, "(%" PRId64 " more)", step->count - 1 - HEAD);
            put_term(line, text);
            i = step->count - 2;
            continue;
        }
        snprintf(text, sizeof text, "exp(%s - %s)", plain(w->x[step->first + i], logit),
                 plain(step->base, base));
        put_term(line, text);
    }
}

// The same by value. Terms left out stand as their sum, so that the line still adds up. Returns
// the sum of what was printed, in units of the last digit.
static double put_values(sum_line *line, const walk *w, const online_step *step, const float *terms)
{
    char text[LONG_TEXT], number[TEXT];
    double sum = 0, middle = 0;
    for (int64_t i = 0; i < step->count; i++) {
        if (elided(step, i)) {
            middle += (double)terms[i];
            if (elided(step, i + 1)) continue;
            snprintf(text, sizeof text, "%s (%" PRId64 " terms)", fixed(middle, w->digits, number),
                     step->count - 1 - HEAD);
            put_term(line, text);
            sum += units(middle, w->digits);
            continue;
        }
        put_term(line, fixed((double)terms[i], w->digits, number));
        sum += units((double)terms[i], w->digits);
    }
    return sum;
}

static void print_head(const online_step *step, int digits)
{
    char old[TEXT], new[TEXT], base[TEXT], correction[TEXT];
    if (step->block == 0) {
        printf("\nblock 0   m = %s, nothing held yet\n", plain(step->m_new, new));
    } else {
        char moved[LONG_TEXT], rebase[2 * LONG_TEXT];
        snprintf(moved, sizeof moved, "block %" PRId64 "   m: %s -> %s,", step->block,
                 plain(step->m_old, old), plain(step->m_new, new));
        snprintf(rebase, sizeof rebase, "correction = exp(%s - %s) = %s", plain(step->m_old, old),
                 plain(step->base, base), fixed((double)step->correction, digits, correction));
        const bool fits = strlen(moved) + 1 + strlen(rebase) <= LINE;
        printf("\n%s%s%s\n", moved, fits ? " " : "\n  ", rebase);
    }
    if (step->m_new == -INFINITY) puts("  no finite maximum yet, so 0 is subtracted");
}

// What the printed digits give where it is not what is printed, on the line it concerns.
static void print_total(walk *w, const online_step *step, double printed_sum)
{
    char total[TEXT], other[TEXT];
    const int digits = w->digits;
    const double unit = pow(10, -digits);
    printf("\n    = %s", fixed((double)step->l_after, digits, total));
    if (isfinite(step->l_after) && printed_sum != units((double)step->l_after, digits)) {
        printf("   [digits add to %s]", fixed(printed_sum * unit, digits, other));
        w->residual = true;
    }
    if (step->block > 0 && isfinite(step->l_rebased)) {
        const double product = units((double)step->l_before, digits) *
                               units((double)step->correction, digits) * unit * unit;
        if (units(product, digits) != units((double)step->l_rebased, digits)) {
            printf("\n      [digits multiply to %s]", fixed(product, digits, other));
            w->residual = true;
        }
    }
    putchar('\n');
}

static void print_step(walk *w, const online_step *step, const float *terms)
{
    char before[TEXT], correction[TEXT], text[LONG_TEXT];
    sum_line line = {.column = 6};
    double sum = 0;
    print_head(step, w->digits);
    fputs("  l = ", stdout);
    if (step->block > 0) {
        snprintf(text, sizeof text, "%s x %s", fixed((double)step->l_before, w->digits, before),
                 fixed((double)step->correction, w->digits, correction));
        put_term(&line, text);
    }
    put_names(&line, w, step);
    fputs("\n    = ", stdout);
    line = (sum_line){.column = 6};
    if (step->block > 0) {
        put_term(&line, fixed((double)step->l_rebased, w->digits, before));
        sum = units((double)step->l_rebased, w->digits);
    }
    sum += put_values(&line, w, step, terms);
    print_total(w, step, sum);
}

static void print_left_out(walk *w)
{
    char factor[TEXT];
    if (w->left_out > 0)
        printf("\n... %" PRId64 " block%s that do%s not raise m: correction %s, terms added ...\n",
               w->left_out, w->left_out == 1 ? "" : "s", w->left_out == 1 ? "es" : "",
               plain(w->left_factor, factor));
    w->left_out = 0;
}

static void observe(void *context, const online_step *step, const float *terms)
{
    walk *w = context;
    const bool raised = step->block > 0 && step->m_new > step->m_old;
    if (raised || w->check.block == 0) w->check = *step;
    w->last = *step;
    // A long row: the first blocks, the last, and those that raise the maximum.
    if (step->block < BLOCKS_SHOWN || step->block == w->blocks - 1 || raised) {
        print_left_out(w);
        print_step(w, step, terms);
    } else {
        w->left_out++;
        w->left_factor = step->correction;
    }
}

static void print_pair(walk *w, const char *a, double x, const char *b, double y)
{
    char text[TEXT];
    const int digits = w->digits;
    const double printed = fabs(units(x, digits) - units(y, digits));
    printf("  %-36s %*s\n", a, digits + 6, fixed(x, digits, text));
    printf("  %-36s %*s\n", b, digits + 6, fixed(y, digits, text));
    printf("  %-36s %*s", "difference", digits + 6, fixed(fabs(x - y), digits, text));
    if (isfinite(printed) && printed != units(fabs(x - y), digits)) {
        printf("   [digits give %s]", fixed(printed * pow(10, -digits), digits, text));
        w->residual = true;
    }
    putchar('\n');
}

// The held terms side by side, each as long as its share of l and marked with its block.
static void print_bar(const float *terms, int64_t n, int64_t block)
{
    double sum = 0, seen = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)terms[i];
    if (!(sum > 0) || isinf(sum)) return; // nothing to draw
    fputs("\nterms held, marked by block\n  [", stdout);
    int drawn = 0;
    for (int64_t i = 0; i < n; i++) {
        seen += (double)terms[i];
        const int end = (int)lround(seen / sum * BAR);
        if (n <= CUTS && drawn > 0 && end > drawn) putchar('|');
        for (; drawn < end; drawn++)
            putchar("0123456789abcdefghijklmnopqrstuvwxyz"[i / block % 36]);
    }
    puts("]");
}

static void print_checks(walk *w, const float *scratch_p, float lse, float *terms)
{
    const online_step *check = &w->check;
    const int digits = w->digits;
    if (check->block > 0) {
        printf("\none multiply for %" PRId64 " held term%s, block %" PRId64 "\n", check->first,
               check->first == 1 ? "" : "s", check->block);
        print_pair(w, "l_old x correction", (double)check->l_rebased,
                   "recomputed: sum of exp(x - m_new)",
                   (double)row_exp_sum(terms, w->x, check->base, check->first));
    }
    printf("\none pass, %" PRId64 " block%s\n", w->blocks, w->blocks == 1 ? "" : "s");
    const float max = row_max(w->x, w->n), base = max == -INFINITY ? 0.0f : max;
    const float whole = row_exp_sum(terms, w->x, base, w->n);
    print_pair(w, "streamed l", (double)w->last.l_after, "whole row: sum of exp(x - max)",
               (double)whole);
    print_bar(terms, w->n, w->last.block > 0 ? (w->last.first / w->last.block) : w->n);
    char text[TEXT];
    printf("\nlog of the sum of exp(x) = %s\n", fixed((double)lse, digits, text));
    if (w->n > P_SHOWN) return;
    int column = printf("softmax =");
    for (int64_t i = 0; i < w->n; i++) {
        const int width = 1 + (int)strlen(fixed((double)scratch_p[i], digits, text));
        if (column + width > LINE) column = printf("\n         ") - 1;
        column += printf(" %s", fixed((double)scratch_p[i], digits, text));
    }
    putchar('\n');
}

attention_status walkthrough_print(const float *x, int64_t n, int64_t block, int digits)
{
    float *p, *terms = NULL;
    attention_status status = tensor_new("the row's softmax", 1, 1, 1, n, &p);
    if (status == ATTENTION_OK) status = tensor_new("the row's terms", 1, 1, 1, n, &terms);
    if (status == ATTENTION_OK) {
        block = min64(block, n);
        walk w = {.x = x, .n = n, .blocks = (n - 1) / block + 1, .digits = digits};
        printf("%" PRId64 " logit%s in blocks of %" PRId64 "\n", n, n == 1 ? "" : "s", block);
        const float lse = online_softmax(p, x, n, block, observe, &w);
        print_checks(&w, p, lse, terms);
        if (w.residual)
            puts("\n[...]: every number is rounded by itself, so the printed digits can miss the\n"
                 "printed result by a little in the last place; fp32 itself carries 7 or 8 digits");
    }
    tensor_free(p);
    tensor_free(terms);
    return status;
}

typedef struct {
    FILE *stream;
    const float *x;
} csv;

static void write_terms(void *context, const online_step *s, const float *terms)
{
    const csv *c = context;
    for (int64_t i = 0; i < s->count; i++)
        fprintf(c->stream, "%" PRId64 ",%" PRId64 ",%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g\n",
                s->block, s->first + i, (double)c->x[s->first + i], (double)s->m_old,
                (double)s->m_new, (double)s->correction, (double)s->l_before, (double)s->l_rebased,
                (double)terms[i], (double)s->l_after);
}

static void write_block(void *context, const online_step *s, const float *terms)
{
    const csv *c = context;
    (void)terms;
    fprintf(c->stream, "%" PRId64 ",%.9g,%.9g,%.9g,%.9g,%d\n", s->block,
            (double)row_max(c->x + s->first, s->count), (double)s->m_old, (double)s->m_new,
            (double)s->correction, s->block > 0 && s->m_new > s->m_old);
}

static attention_status write_csv(const char *path, const char *header, online_observer *write,
                                  const float *x, int64_t n, int64_t block)
{
    float *p;
    output_file file;
    attention_status status = tensor_new("the row's softmax", 1, 1, 1, n, &p);
    if (status == ATTENTION_OK) status = output_file_open(&file, path);
    if (status == ATTENTION_OK) {
        csv c = {file.stream, x};
        fprintf(file.stream, "%s\n", header);
        online_softmax(p, x, n, min64(block, n), write, &c);
        status = output_file_commit(&file);
    }
    tensor_free(p);
    return status;
}

attention_status walkthrough_trace_csv(const char *path, const float *x, int64_t n, int64_t block)
{
    return write_csv(path,
                     "block,index,logit,m_old,m_new,correction,l_before,l_rebased,term,l_after",
                     write_terms, x, n, block);
}

attention_status walkthrough_rescale_csv(const char *path, const float *x, int64_t n, int64_t block)
{
    return write_csv(path, "block,block_max,m_old,m_new,correction,raised", write_block, x, n,
                     block);
}
