// recorder.h: what a kernel tells about its work. Only the tracing build (-DTRACE) listens: in the
// other a recorder is empty, its calls vanish, and the kernel that is timed carries nothing.
#ifndef RECORDER_H
#define RECORDER_H

#include "attention.h"
#include "tile.h"

namespace
{

struct recorder {
#ifdef TRACE
    static constexpr bool listens = true;
    attention_counters *counters; // on the device
    rebase_step *steps;           // on the device, one a key tile; null if no row is traced
    int64_t head, query;          // the traced row
    int64_t block_k;

    explicit recorder(const attention_args *args)
        : counters(args->counters), steps(args->trace ? args->trace->steps : nullptr),
          head(args->trace ? args->trace->row / args->seq : 0),
          query(args->trace ? args->trace->row % args->seq : 0), block_k(args->block_k)
    {
    }

    __device__ static void add(int64_t *to, int64_t value)
    {
        atomicAdd(reinterpret_cast<unsigned long long *>(to),
                  static_cast<unsigned long long>(value));
    }

    // A tile of scores: the products it took and the bytes that came from global memory for it.
    // All threads of the block call; the first one counts.
    __device__ void tile(int64_t flops, int64_t bytes) const
    {
        if (threadIdx.x != 0) return;
        add(&counters->tiles, 1);
        add(&counters->flops, flops);
        add(&counters->bytes, bytes);
    }

    // The same where one thread copies, and calls this, and warpgroups make scores.
    __device__ void bytes(int64_t bytes) const
    {
        add(&counters->bytes, bytes);
    }
    __device__ void scores(int64_t flops) const // a warpgroup calls, its first thread counts
    {
        if (threadIdx.x % 128 != 0) return;
        add(&counters->tiles, 1);
        add(&counters->flops, flops);
    }

    // One step of the recurrence of query `i` of head `bh`; m in log2 units, as kernels keep it.
    __device__ void rebase(int64_t bh, int64_t i, int64_t first_key, int64_t keys, float m_old,
                           float m_new, float correction, float l) const
    {
        constexpr float ln2 = 0.693147181f;
        if (steps && bh == head && i == query)
            steps[first_key / block_k] =
                rebase_step{first_key, keys, m_old * ln2, m_new * ln2, correction, l};
    }
#else
    static constexpr bool listens = false;
    explicit recorder(const attention_args *)
    {
    }
    __device__ void tile(int64_t, int64_t) const
    {
    }
    __device__ void bytes(int64_t) const
    {
    }
    __device__ void scores(int64_t) const
    {
    }
    __device__ void rebase(int64_t, int64_t, int64_t, int64_t, float, float, float, float) const
    {
    }
#endif
};

} // namespace
#endif
