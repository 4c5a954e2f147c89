// emulator.cpp: runs the blocks of a launch, and within a block its threads, one at a time.
//
// A thread runs until it waits (for a barrier, for the other lanes of its warp) or ends; then a
// seeded random choice among those that can go on gets the core. When none can and not all have
// ended, the block is stuck, and who waits where is the error.
#include "emulator.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include "emulator_block.h"
#include "emulator_fiber.h"
#include "emulator_runtime.h"

namespace emulator
{

__thread block_state *current_block;
__thread thread_state *current_thread;

const dim3 &thread_index()
{
    return current_thread->index;
}
const dim3 &block_index()
{
    return current_block->block_index[current_thread->rank];
}
const dim3 &block_extent()
{
    return current_block->block_extent;
}
const dim3 &grid_extent()
{
    return current_block->grid_extent;
}

uint64_t next_random(uint64_t &state)
{
    state += 0x9e3779b97f4a7c15; // splitmix64
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

// Instead of thread i of those that can go on, if it is of the late warp, the next that is not, or
// a copy in flight; i itself if there is none.
static size_t not_late(const block_state &block, size_t i)
{
    const size_t threads = block.runnable.size();
    for (size_t step = 0; step < threads; step++) {
        const size_t at = (i + step) % threads;
        if (block.runnable[at]->warp->index != block.late_warp) return at;
    }
    return block.boxes.empty() ? i : threads;
}

// Takes a random thread off the list of those that can go on; NULL if there is none. A copy in
// flight has as good a chance to be next as a thread, and may let threads go on.
static thread_state *pick_next(block_state &block)
{
    for (;;) {
        const size_t threads = block.runnable.size(), count = threads + block.boxes.size();
        if (!count) return nullptr;
        size_t i = static_cast<size_t>(((next_random(block.random) >> 32) * count) >> 32);
        if (block.late_warp >= 0 && i < threads) i = not_late(block, i);
        if (i >= threads) {
            deliver_box(block, i - threads);
            continue;
        }
        thread_state *next = block.runnable[i];
        block.runnable[i] = block.runnable.back();
        block.runnable.pop_back();
        return next;
    }
}

void give_way(bool for_good)
{
    block_state &block = *current_block;
    thread_state *self = current_thread, *next = pick_next(block);
    if (next == self) return; // a copy woke it
    block.previous = self;
    block.report.switches++;
    current_thread = next;
    fiber_switch(&self->context, next ? &next->context : &block.scheduler, for_good);
}

static void thread_entry()
{
    block_state &block = *current_block;
    fiber_entered(block.previous ? &block.previous->context : &block.scheduler);
    block.call(block.kernel, block.arguments);
    check_copies_waited_for();
    check_products_waited_for();
    check_boxes_waited_for();
    current_thread->waits_for = "";
    block.finished[current_thread->rank]++;
    pass_cluster_barrier();
    give_way(true);
    abort(); // nobody resumes a finished thread
}

void fail(site where, const char *format, ...)
{
    block_state &block = *current_block;
    thread_state *self = current_thread;
    va_list list;
    va_start(list, format);
    int used = snprintf(block.message, sizeof block.message, "%s:%d: thread %d of block %lld ",
                        where.file, where.line, self->id % block.block_threads,
                        static_cast<long long>(block.index + self->rank));
    vsnprintf(block.message + used, sizeof block.message - static_cast<size_t>(used), format, list);
    va_end(list);
    block.failed = true;
    block.previous = self;
    current_thread = nullptr;
    fiber_switch(&self->context, &block.scheduler, true);
    abort();
}

// The block's threads wait for one another in a way that cannot end: says for what.
static void report_stuck(block_state &block)
{
    char *to = block.message, *end = to + sizeof block.message;
    describe_mbarriers(block);
    to += snprintf(to, static_cast<size_t>(end - to),
                   "block %lld is stuck:", static_cast<long long>(block.index));
    std::vector<bool> told(block.threads.size());
    for (size_t i = 0; i < told.size() && end - to > 200; i++) {
        if (told[i]) continue;
        const thread_state &one = block.threads[i];
        int alike = 0;
        for (size_t j = i; j < told.size(); j++) {
            const thread_state &other = block.threads[j];
            if (strcmp(other.waits_for, one.waits_for) != 0 || !same(other.where, one.where))
                continue;
            told[j] = true;
            alike++;
        }
        const char *comma = i ? ";" : "";
        if (*one.waits_for)
            to += snprintf(to, static_cast<size_t>(end - to),
                           "%s thread %d and %d more wait for %s (%s:%d)", comma, one.id, alike - 1,
                           one.waits_for, one.where.file, one.where.line);
        else
            to += snprintf(to, static_cast<size_t>(end - to),
                           "%s thread %d and %d more have returned", comma, one.id, alike - 1);
    }
    block.failed = true;
}

static void reset_async(block_state &block)
{
    async_use unused = {};
    unused.writer = -1;
    std::fill(block.uses.begin(), block.uses.end(), unused);
    block.mbarriers.clear();
    block.boxes.clear();
    for (auto &of_block : block.named)
        for (named_barrier &b : of_block) b = {};
    for (warpgroup_state &group : block.groups) group = {};
}

static void reset_block(block_state &block, const fiber_stacks &stacks, int64_t index,
                        const launch_request &request)
{
    block.index = index;
    for (int r = 0; r < block.cluster; r++) {
        block.block_index[r].x = static_cast<unsigned>((index + r) % request.grid.x);
        block.block_index[r].y = static_cast<unsigned>(index / request.grid.x % request.grid.y);
        block.block_index[r].z = static_cast<unsigned>(index / request.grid.x / request.grid.y);
        block.at_barrier[r] = block.finished[r] = 0;
        block.epoch[r] = 1;
    }
    block.at_cluster_barrier = 0;
    block.last_epoch = 1;
    block.random = request.seed;
    block.random += next_random(block.random) * static_cast<uint64_t>(index + 1);
    std::fill(block.memory.begin(), block.memory.end(), 0xff); // NaN in every type
    std::fill(block.shadows.begin(), block.shadows.end(), shadow{});
    reset_async(block);
    block.runnable.clear();
    for (size_t i = 0; i < block.threads.size(); i++) {
        thread_state &t = block.threads[i];
        const unsigned id = static_cast<unsigned>(i) % static_cast<unsigned>(block.block_threads);
        t.index = dim3(id % request.block.x, id / request.block.x % request.block.y,
                       id / request.block.x / request.block.y);
        t.id = static_cast<int>(i);
        t.lane = t.id % warp_size;
        t.rank = t.id / block.block_threads;
        t.warp = &block.warps[i / warp_size];
        t.waits_for = nullptr;
        t.where = site("", 0);
        t.accesses = 0;
        t.copies.clear();
        t.commits = 0;
        t.fenced = t.waited_for_launches = false;
        fiber_prepare(&t.context, stacks.stack(t.id), stacks.bytes(), thread_entry);
        block.runnable.push_back(&t);
    }
    for (size_t i = 0; i < block.warps.size(); i++) {
        warp_state &warp = block.warps[i];
        warp.threads = &block.threads[i * warp_size];
        warp.index = static_cast<int>(i);
        warp.arrived = warp.group_arrived = 0;
        warp.epoch = 1;
        warp.clock = {};
        for (uint32_t &tick : warp.clock.ticks) tick = 1;
        for (access_log &entry : warp.log) entry.lanes = 0;
    }
}

// Takes blocks off the launch until none is left or one has failed.
void run_blocks(launch_request &request)
{
    const int block_threads = static_cast<int>(request.block.x * request.block.y * request.block.z);
    const int threads = block_threads * request.cluster;
    const size_t memory_bytes =
        (static_cast<size_t>(request.cluster - 1) << cluster_shift) + request.shared_bytes;
    const fiber_stacks stacks(threads);
    if (!stacks.ok()) return request.out_of_memory();
    auto owner = std::make_unique<block_state>();
    block_state &block = *owner;
    block.block_extent = request.block;
    block.grid_extent = request.grid;
    block.threads.resize(static_cast<size_t>(threads));
    block.warps.resize(static_cast<size_t>(threads / warp_size));
    block.cluster = request.cluster;
    block.block_threads = block_threads;
    block.shared_bytes = static_cast<uint32_t>(request.shared_bytes);
    block.memory.resize(memory_bytes);
    block.shadows.resize((memory_bytes + 1) / 2);
    block.uses.resize((memory_bytes + async_use_bytes - 1) / async_use_bytes);
    block.groups.resize(block.warps.size() / group_warps);
    block.mbarriers.reserve(max_mbarriers);
    block.call = request.call;
    block.kernel = request.kernel;
    block.early = request.early;
    block.late_warp = request.late_warp;
    block.arguments = request.arguments;
    block_state *outer = current_block;
    current_block = &block;

    for (int64_t index; !block.failed && (index = request.take_block()) >= 0;) {
        reset_block(block, stacks, index, request);
        block.report.blocks += block.cluster;
        block.previous = nullptr;
        current_thread = pick_next(block);
        fiber_switch(&block.scheduler, &current_thread->context);
        int finished = 0;
        for (int r = 0; r < block.cluster; r++) finished += block.finished[r];
        if (!block.failed && finished < threads) report_stuck(block);
    }
    current_block = outer;
    request.finish(block.report, block.failed ? block.message : nullptr, block.index);
}

} // namespace emulator
