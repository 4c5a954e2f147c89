// attention.h: the contract. Every stage defines attention_forward as declared here.
//
// Letters, as in the articles: B batch, H heads, N sequence length, D head dimension.
// q k v o are the tensors, s the scores, p the softmax numerators, m a row's running
// maximum, l its running sum, acc its output before the division by l.
#ifndef ATTENTION_H
#define ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HEAD_DIM_MAX = 256 };

typedef enum { DTYPE_FP32, DTYPE_FP16, DTYPE_BF16 } attention_dtype;

// What one call did, tallied in its loops; not derived from the shape.
typedef struct {
    int64_t tiles;       // score tiles computed
    int64_t flops;       // of the two matrix products, a multiply and an add counting two
    int64_t score_bytes; // bytes of S and P written to and read from main memory
    int64_t bytes;       // bytes of every other tensor that crosses main memory
} attention_counters;

static inline attention_counters attention_counters_sum(attention_counters a, attention_counters b)
{
    a.tiles += b.tiles;
    a.flops += b.flops;
    a.score_bytes += b.score_bytes;
    a.bytes += b.bytes;
    return a;
}

// Lets a parallel loop say reduction(+ : tally).
#ifdef _OPENMP
#pragma omp declare reduction(+ : attention_counters                                              \
                              : omp_out = attention_counters_sum(omp_out, omp_in))
#endif

// One step of the recurrence for one query row: what --trace prints.
typedef struct {
    int64_t first_key, keys; // the tile's keys are first_key .. first_key + keys - 1
    float m_old, m_new;      // running maximum before and after, natural-log units
    float correction;        // exp(m_old - m_new), 0 while m_new is -inf: what l and acc were
                             // multiplied by
    float l;                 // running sum after the step
} rebase_step;

typedef struct {
    int64_t row;        // the row to record, counted over batch x heads x seq
    rebase_step *steps; // [capacity]
    int64_t capacity;   // at least the number of key tiles
    int64_t count;      // steps recorded
} rebase_trace;

typedef struct {
    int64_t batch, heads, seq, head_dim;
    attention_dtype dtype;
    bool causal;                  // query i sees keys 0..i
    float scale;                  // multiplies q k^T; attention_args_default sets 1/sqrt(head_dim)
    int64_t block_q, block_k;     // edges of a score tile, from 1; larger than seq means seq
    int threads;                  // 0: as many as OpenMP gives
    attention_counters *counters; // may be NULL
    rebase_trace *trace;          // may be NULL
    float *p_out;                 // [batch, heads, seq, seq] or NULL; stage 0 alone fills it
} attention_args;

// o = softmax(scale q k^T) v for every head, and lse = log of the sum of exp of the scores.
//
//   q k v o  [batch, heads, seq, head_dim], row-major, contiguous, float. For fp16 and bf16
//            the values are already rounded to that type, and o is rounded to it.
//   lse      [batch, heads, seq], natural logarithm, or NULL
//
// A row that sees no finite score (all -inf) gives o = 0 and lse = -inf.
// Returns ATTENTION_OK; ATTENTION_BAD_ARGUMENT for shapes, types, tiles or a scale the stage
// does not take; ATTENTION_NO_MEMORY when scratch does not fit, naming the bytes. Then o and lse
// are untouched; after another error, of a device say, they may be written in part.
// status_message() says what was wrong. Source: Dao et al. 2022; Exact, section 4; Forward, part 2.
attention_status attention_forward(const float *q, const float *k, const float *v, float *o,
                                   float *lse, const attention_args *args);

// The type of attention_forward, for tables of stages.
typedef attention_status attention_function(const float *q, const float *k, const float *v,
                                            float *o, float *lse, const attention_args *args);

// The same on tensors that are on the device already, of the CUDA stages alone: q k v o point to
// 16-bit elements and start at multiples of 16 bytes, lse to floats or is NULL. Queues the work on
// the stream and returns: this is what events time. Errors as above, and ATTENTION_NO_DEVICE.
struct CUstream_st; // a cudaStream_t points to one
attention_status attention_forward_device(const void *q, const void *k, const void *v, void *o,
                                          float *lse, const attention_args *args,
                                          struct CUstream_st *stream);
typedef attention_status attention_device_function(const void *q, const void *k, const void *v,
                                                   void *o, float *lse, const attention_args *args,
                                                   struct CUstream_st *stream);

// Arguments for a shape: fp32, not causal, scale 1/sqrt(head_dim), tiles of 128 x 128.
attention_args attention_args_default(int64_t batch, int64_t heads, int64_t seq, int64_t head_dim);

// Refuses null pointers, extents below 1, a head_dim above HEAD_DIM_MAX, a NaN scale, tiles
// below 1, and shapes whose elements 64 bits cannot count. Every stage calls it first.
attention_status attention_check(const float *q, const float *k, const float *v, const float *o,
                                 const attention_args *args);

// A kernel's block_k that depends on head_dim, as one number: below 0, so that none is mistaken
// for it.
#define BLOCK_K_BY_HEAD_DIM(at_64, at_128) (-((at_64)*1024 + (at_128)))

// The keys of a tile at this head_dim: block_k itself, or the one of the two that it stands for.
static inline int64_t attention_block_k(int64_t block_k, int64_t head_dim)
{
    if (block_k >= 0) return block_k;
    return head_dim <= 64 ? -block_k / 1024 : -block_k % 1024;
}

// What the CUDA stages take beyond that: fp16 or bf16, head_dim 64 or 128, and the one tile that
// the kernel was compiled for, block_q x attention_block_k(block_k).
attention_status attention_check_cuda(const attention_args *args, int64_t block_q, int64_t block_k);

// The number of OpenMP threads a stage should use: args->threads, or OpenMP's own choice.
int attention_threads(const attention_args *args);

// FLOPs that attention of this shape needs, whatever a program does: two products, a multiply and
// an add each, over all N x N scores, or the N (N + 1) / 2 on and below the diagonal if causal.
double attention_useful_flops(const attention_args *args);

// Records one step if trace is not NULL and row is the row it asks for.
void trace_rebase(rebase_trace *trace, int64_t row, int64_t first_key, int64_t keys, float m_old,
                  float m_new, float correction, float l);

// "fp32", "fp16" or "bf16".
const char *dtype_name(attention_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
