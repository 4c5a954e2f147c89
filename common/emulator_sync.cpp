// emulator_sync.cpp: how threads wait for one another, and what a warp knows to have happened.
#include <algorithm>

#include "emulator.h"
#include "emulator_block.h"

namespace emulator
{

void join(vector_clock &to, const vector_clock &from)
{
    for (int i = 0; i < max_warps; i++) to.ticks[i] = std::max(to.ticks[i], from.ticks[i]);
    for (int i = 0; i < max_mbarriers; i++) to.phases[i] = std::max(to.phases[i], from.phases[i]);
}

void advance(block_state &block, warp_state &warp)
{
    warp.clock.ticks[warp.index] = ++block.last_epoch;
}

bool same(site a, site b)
{
    return a.line == b.line && (a.file == b.file || !strcmp(a.file, b.file));
}

void park(const char *text, site where)
{
    current_thread->waits_for = text;
    current_thread->where = where;
    give_way(false);
}

void wake(block_state &block, thread_state &thread)
{
    thread.waits_for = nullptr;
    block.runnable.push_back(&thread);
}

void let_others_run()
{
    current_block->runnable.push_back(current_thread);
    give_way(false);
}

// Those of them that have not returned go on.
static void release(block_state &block, thread_state *threads, int count)
{
    for (int i = 0; i < count; i++) {
        if (!*threads[i].waits_for) continue;
        threads[i].waits_for = nullptr;
        if (&threads[i] != current_thread) block.runnable.push_back(&threads[i]);
    }
}

void collective(const char *name, site where, void *arguments,
                void (*execute)(block_state &, warp_state &, void **), int warps)
{
    block_state &block = *current_block;
    thread_state &self = *current_thread;
    const size_t first = static_cast<size_t>(self.warp->index / warps * warps);
    if (first + static_cast<size_t>(warps) > block.warps.size())
        fail(where, "is at %s, but its warpgroup has less than four warps", name);
    warp_state &warp = block.warps[first];
    const int lanes = warps * warp_size;
    int &arrived = warps > 1 ? warp.group_arrived : warp.arrived;
    self.waits_for = name;
    self.where = where;
    self.arguments = arguments;
    if (++arrived < lanes) return give_way(false);

    void *all[group_size];
    for (int lane = 0; lane < lanes; lane++) {
        const thread_state &other = warp.threads[lane];
        if (strcmp(other.waits_for, name) != 0 || !same(other.where, where))
            fail(where,
                 "is at %s, but thread %d of its %s is at %s (%s:%d): a warp operation "
                 "needs all its lanes",
                 name, other.id, warps > 1 ? "warpgroup" : "warp", other.waits_for,
                 other.where.file, other.where.line);
        all[lane] = other.arguments;
    }
    for (int w = 0; w < warps; w++)
        settle_accesses(block, block.warps[first + static_cast<size_t>(w)]);
    arrived = 0;
    block.report.collectives++;
    execute(block, warp, all);
    release(block, warp.threads, lanes);
}

uint32_t own_memory()
{
    return static_cast<uint32_t>(current_thread->rank) << cluster_shift;
}

uint32_t peer(uint32_t address)
{
    return address ^ 1u << cluster_shift;
}

// All of `threads` that have not returned are at the barrier: what their warps did is in order.
static void pass_barrier(block_state &block, thread_state *threads, int count)
{
    vector_clock all = {};
    block.last_epoch++;
    for (int i = 0; i < count; i += warp_size) join(all, threads[i].warp->clock);
    for (int i = 0; i < count; i += warp_size) {
        all.ticks[threads[i].warp->index] = block.last_epoch;
        block.epoch[threads[i].rank] = block.last_epoch;
    }
    for (int i = 0; i < count; i += warp_size) {
        warp_state &warp = *threads[i].warp;
        settle_accesses(block, warp);
        warp.epoch = block.last_epoch;
        warp.clock = all;
    }
    release(block, threads, count);
}

void barrier(site where)
{
    block_state &block = *current_block;
    thread_state &self = *current_thread;
    self.waits_for = "a barrier";
    self.where = where;
    if (++block.at_barrier[self.rank] < block.block_threads) return give_way(false);
    thread_state *threads = &block.threads[static_cast<size_t>(self.rank * block.block_threads)];
    for (int i = 0; i < block.block_threads; i++)
        if (!same(threads[i].where, where))
            fail(where, "is at a barrier, but thread %d is at another (%s:%d)", threads[i].id,
                 threads[i].where.file, threads[i].where.line);
    block.at_barrier[self.rank] = 0;
    pass_barrier(block, threads, block.block_threads);
}

void pass_cluster_barrier()
{
    block_state &block = *current_block;
    const int threads = static_cast<int>(block.threads.size());
    int gone = 0;
    for (int r = 0; r < block.cluster; r++) gone += block.finished[r];
    if (!block.at_cluster_barrier || block.at_cluster_barrier + gone < threads) return;
    block.at_cluster_barrier = 0;
    pass_barrier(block, block.threads.data(), threads);
}

void cluster_barrier(site where)
{
    block_state &block = *current_block;
    current_thread->waits_for = "the cluster's barrier";
    current_thread->where = where;
    block.at_cluster_barrier++;
    pass_cluster_barrier();
    if (current_thread->waits_for) give_way(false);
}

} // namespace emulator
