// support.h: inputs, runs and judgements that the tests of all stages share.
#ifndef SUPPORT_H
#define SUPPORT_H

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "half.h"
#include "oracle.h"
#include "random.h"
#include "stages.h"
#include "tensor.h"

// A shape with its tensors; o and lse have a guard on both sides, to catch stray writes.
typedef struct {
    attention_args args;
    int64_t count, rows; // of o, of lse
    float *q, *k, *v, *o, *lse;
} problem;

enum { GUARD = 256 };
static const float guard_value = -12345.0f;

static inline float *guarded(int64_t count)
{
    float *x = malloc((size_t)(count + 2 * GUARD) * sizeof *x);
    cr_assert_not_null(x);
    for (int64_t i = 0; i < count + 2 * GUARD; i++) x[i] = guard_value;
    return x + GUARD;
}

static inline bool guards_intact(const float *x, int64_t count)
{
    for (int i = 0; i < GUARD; i++)
        if (x[-1 - i] != guard_value || x[count + i] != guard_value) return false;
    return true;
}

// `count` floats whose end touches a page that nobody may read or write.
static inline float *walled(int64_t count)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (size_t)count * sizeof(float);
    const size_t whole = (bytes + page - 1) / page * page;
    char *memory =
        mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(memory, MAP_FAILED);
    cr_assert_eq(mprotect(memory + whole, page, PROT_NONE), 0);
    return (float *)(void *)(memory + whole - bytes);
}

static inline void walled_free(float *x, int64_t count)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *wall = (char *)(x + count);
    const size_t whole = ((size_t)count * sizeof(float) + page - 1) / page * page;
    munmap(wall - whole, whole + page);
}

static inline problem problem_new(int64_t batch, int64_t heads, int64_t seq, int64_t head_dim)
{
    problem p = {.args = attention_args_default(batch, heads, seq, head_dim)};
    p.args.threads = 2;
    p.rows = batch * heads * seq;
    p.count = p.rows * head_dim;
    float **const tensors[] = {&p.q, &p.k, &p.v, &p.o};
    for (int t = 0; t < 4; t++) *tensors[t] = guarded(p.count);
    p.lse = guarded(p.rows);
    return p;
}

static inline void problem_free(problem *p)
{
    float *const tensors[] = {p->q, p->k, p->v, p->o, p->lse};
    for (int t = 0; t < 5; t++) free(tensors[t] - GUARD);
}

// q, k, v as PyTorch would draw them; q and k times amp; rounded to args.dtype.
static inline void problem_draw(problem *p, uint32_t seed, float amp)
{
    float *const tensors[] = {p->q, p->k, p->v};
    random_stream stream;
    random_seed(&stream, seed);
    for (int t = 0; t < 3; t++) {
        random_normal(&stream, tensors[t], p->count);
        for (int64_t i = 0; i < p->count; i++)
            tensors[t][i] = dtype_round(tensors[t][i] * (t < 2 ? amp : 1.0f), p->args.dtype);
    }
}

static inline void fill(float *x, int64_t count, float value)
{
    for (int64_t i = 0; i < count; i++) x[i] = value;
}

static inline void problem_run(problem *p, attention_function *f)
{
    fill(p->o, p->count, NAN); // an element that nobody writes stays NaN
    fill(p->lse, p->rows, NAN);
    const attention_status status = f(p->q, p->k, p->v, p->o, p->lse, &p->args);
    cr_assert_eq(status, ATTENTION_OK, "%s", status_message());
    cr_assert(guards_intact(p->o, p->count), "something was written beside o");
    cr_assert(guards_intact(p->lse, p->rows), "something was written beside lse");
}

// Every element by the design's rule.
static inline void problem_judge(const problem *p)
{
    oracle_report r;
    cr_assert_eq(oracle_check(&r, p->q, p->k, p->v, p->o, p->lse, &p->args), ATTENTION_OK);
    const attention_args *a = &p->args;
    cr_expect_eq(
        r.failed, 0,
        "B=%" PRId64 " H=%" PRId64 " N=%" PRId64 " D=%" PRId64 " %s causal=%d tile %" PRId64
        "x%" PRId64 ": %" PRId64 " wrong, first o[%" PRId64 "], max error %g (%.2f of its "
        "bound), lse %g",
        a->batch, a->heads, a->seq, a->head_dim, dtype_name(a->dtype), a->causal, a->block_q,
        a->block_k, r.failed, r.first_failed, r.max_abs, r.max_ratio, r.lse_max);
}

static inline float *copy_of(const float *x, int64_t count)
{
    float *copy = malloc((size_t)count * sizeof *copy);
    cr_assert_not_null(copy);
    return memcpy(copy, x, (size_t)count * sizeof *copy);
}

// Runs f with each of those thread counts: the same bits every time.
static inline void expect_same_bits(problem *p, attention_function *f, const int *threads, int runs)
{
    float *first = NULL, *first_lse = NULL;
    for (int i = 0; i < runs; i++) {
        p->args.threads = threads[i];
        problem_run(p, f);
        if (i == 0) {
            first = copy_of(p->o, p->count);
            first_lse = copy_of(p->lse, p->rows);
        }
        cr_expect_arr_eq(p->o, first, (size_t)p->count * sizeof *first);
        cr_expect_arr_eq(p->lse, first_lse, (size_t)p->rows * sizeof *first_lse);
    }
    free(first);
    free(first_lse);
}

// The keys of a single head, with their values, back to front.
static inline void reverse_keys(problem *p)
{
    const int64_t n = p->args.seq, d = p->args.head_dim;
    for (int64_t j = 0; j < n / 2; j++)
        for (int64_t x = 0; x < d; x++)
            for (int t = 0; t < 2; t++) {
                float *tensor = t ? p->v : p->k, swap = tensor[j * d + x];
                tensor[j * d + x] = tensor[(n - 1 - j) * d + x];
                tensor[(n - 1 - j) * d + x] = swap;
            }
}

// Two records of the recurrence, to 1e-5; l to 1e-5 of its size.
static inline void expect_same_steps(const rebase_step *a, const rebase_step *b, int64_t count)
{
    for (int64_t t = 0; t < count; t++, a++, b++) {
        cr_expect(a->first_key == b->first_key && a->keys == b->keys);
        cr_expect(a->m_old == b->m_old || fabsf(a->m_old - b->m_old) <= 1e-5f);
        cr_expect_float_eq(a->m_new, b->m_new, 1e-5f);
        cr_expect_float_eq(a->correction, b->correction, 1e-5f);
        cr_expect_float_eq(a->l, b->l, 1e-5f * a->l);
    }
}

#endif
