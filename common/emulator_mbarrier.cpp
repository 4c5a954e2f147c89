// emulator_mbarrier.cpp: mbarriers and named barriers, at which some threads of a block wait for
// others, and mbarriers for copies too (PTX manual, sections "mbarrier" and "bar").
//
// What a warp knew when it arrived, those who wait know afterwards: its clock is joined to the
// barrier's, and the barrier's to theirs. A wait that passes too early so shows later, at an access
// that nothing puts in order.
#include <cstdio>

#include "emulator.h"
#include "emulator_block.h"

namespace emulator
{

void mbarrier_init(uint32_t address, int arrivals, site where)
{
    block_state &block = *current_block;
    if (address % 8 || outside(block, address, 8))
        fail(where,
             "initialises an mbarrier at %u: not a multiple of 8 in %u bytes of shared memory",
             address, block.shared_bytes);
    check_own(address, "initialises an mbarrier", where);
    if (arrivals < 1 || arrivals >= 1 << 20)
        fail(where, "initialises an mbarrier for %d arrivals", arrivals);
    for (const mbarrier &other : block.mbarriers)
        if (other.address == address)
            fail(where, "initialises the mbarrier at %u, as thread %d did at line %d: it is in use",
                 address, other.thread, other.where.line);
    if (block.mbarriers.size() == max_mbarriers)
        fail(where, "initialises one more than the emulator's %d mbarriers", max_mbarriers);
    mbarrier m = {};
    m.address = address;
    m.index = static_cast<int>(block.mbarriers.size());
    m.arrivals = m.pending = arrivals;
    m.thread = current_thread->id;
    m.where = where;
    block.mbarriers.push_back(m);
}

void fence_barrier_init(site)
{
    for (mbarrier &m : current_block->mbarriers)
        if (m.thread == current_thread->id && !m.fenced) {
            m.fenced = true;
            m.fenced_at = current_thread->warp->now();
        }
}

mbarrier &find_mbarrier(uint32_t address, bool for_copy, site where)
{
    const thread_state &thread = *current_thread;
    for (mbarrier &m : current_block->mbarriers) {
        if (m.address != address) continue;
        if (!m.fenced && (for_copy || thread.id != m.thread))
            fail(where,
                 "uses the mbarrier at %u, which thread %d initialised (line %d) with no "
                 "fence_barrier_init behind it",
                 address, m.thread, m.where.line);
        if (thread.id != m.thread && unordered(thread, m.thread, m.fenced_at))
            fail(where,
                 "uses the mbarrier at %u, which thread %d initialised (line %d), with no barrier "
                 "between",
                 address, m.thread, m.where.line);
        return m;
    }
    fail(where, "uses an mbarrier at %u, which nobody has initialised%s", address,
         address % 8 ? ": not a multiple of 8" : "");
}

static void describe(mbarrier &m)
{
    snprintf(m.text, sizeof m.text,
             "phase %u of the mbarrier at %u (%d arrivals and %lld bytes missing)", m.phase,
             m.address, m.pending, static_cast<long long>(m.bytes));
}

void describe_mbarriers(block_state &block)
{
    for (mbarrier &m : block.mbarriers) describe(m);
}

static void complete_if_all_came(block_state &block, mbarrier &m)
{
    if (m.pending || m.bytes) return;
    m.phase++;
    m.pending = m.arrivals;
    join(m.completed, m.arrived);
    m.completed.phases[m.index] = m.phase;
    m.arrived = {};
    for (thread_state *thread : m.waiting) {
        join(thread->warp->clock, m.completed);
        wake(block, *thread);
    }
    m.waiting.clear();
}

void mbarrier_receive(block_state &block, mbarrier &m, int64_t bytes)
{
    m.bytes -= bytes;
    complete_if_all_came(block, m);
}

static void arrive(mbarrier &m, uint32_t bytes, site where)
{
    block_state &block = *current_block;
    warp_state &warp = *current_thread->warp;
    if (block.finished[m.address >> cluster_shift] == block.block_threads)
        fail(where, "arrives at the mbarrier at %u of a block that has ended", m.address);
    if (!m.pending)
        fail(where,
             "arrives once too often in phase %u of the mbarrier at %u, which takes %d and lacks "
             "%lld bytes",
             m.phase, m.address, m.arrivals, static_cast<long long>(m.bytes));
    if (m.bytes + bytes >= 1 << 20)
        fail(where, "expects %lld bytes at the mbarrier at %u: it counts to 1048575",
             static_cast<long long>(m.bytes + bytes), m.address);
    advance(block, warp);
    join(m.arrived, warp.clock);
    m.bytes += bytes;
    m.pending--;
    complete_if_all_came(block, m);
    let_others_run();
}

void mbarrier_arrive(uint32_t address, site where)
{
    arrive(find_mbarrier(address, false, where), 0, where);
}

void mbarrier_arrive_drop(uint32_t address, site where)
{
    mbarrier &m = find_mbarrier(address, false, where);
    if (m.arrivals == 1)
        fail(where, "drops the last arrival that the mbarrier at %u takes", address);
    m.arrivals--;
    arrive(m, 0, where);
}

void mbarrier_expect(uint32_t address, uint32_t bytes, site where)
{
    arrive(find_mbarrier(address, false, where), bytes, where);
}

void mbarrier_wait(uint32_t address, int parity, site where)
{
    check_own(address, "waits for an mbarrier", where);
    mbarrier &m = find_mbarrier(address, false, where);
    if (parity != 0 && parity != 1) fail(where, "waits for a phase of parity %d", parity);
    if (static_cast<int>(m.phase % 2) != parity) // the phase before, or one that never was
        return join(current_thread->warp->clock, m.completed);
    describe(m);
    m.waiting.push_back(current_thread);
    park(m.text, where);
}

// ---- named barriers -----------------------------------------------------------------------------

// All have come: those that wait go on, and their warps' lanes are in order.
static void complete(block_state &block, named_barrier &b, int id, site where)
{
    for (const warp_state &warp : block.warps)
        if (b.lanes[warp.index] && b.lanes[warp.index] != 0xffffffff)
            fail(where, "completes named barrier %d, to which only some lanes of warp %d have come",
                 id, warp.index);
    for (thread_state *thread : b.waiting) {
        warp_state &warp = *thread->warp;
        if (thread->lane == 0) {
            settle_accesses(block, warp);
            advance(block, warp);
            warp.epoch = warp.now();
            join(warp.clock, b.clock);
        }
        if (thread == current_thread)
            thread->waits_for = nullptr;
        else
            wake(block, *thread);
    }
    b = {};
}

static void come(int id, int threads, bool and_wait, site where)
{
    block_state &block = *current_block;
    thread_state &self = *current_thread;
    if (id < 1 || id > 15) fail(where, "is at named barrier %d: there are 1 to 15", id);
    if (threads < 1 || threads % warp_size || threads > block.block_threads)
        fail(where, "is at named barrier %d of %d threads, in a block of %d", id, threads,
             block.block_threads);
    named_barrier &b = block.named[self.rank][id];
    if (b.arrived && b.threads != threads)
        fail(where, "is at named barrier %d of %d threads, at which others are for %d", id, threads,
             b.threads);
    uint32_t &lanes = b.lanes[self.warp->index];
    if (lanes >> self.lane & 1)
        fail(where, "comes to named barrier %d again before it is complete", id);
    lanes |= 1u << self.lane;
    b.threads = threads;
    advance(block, *self.warp);
    join(b.clock, self.warp->clock);
    if (and_wait) b.waiting.push_back(&self);
    if (++b.arrived == threads) return complete(block, b, id, where);
    if (!and_wait) return;
    snprintf(b.text, sizeof b.text, "named barrier %d", id);
    park(b.text, where);
}

void named_barrier_sync(int id, int threads, site where)
{
    come(id, threads, true, where);
}

void named_barrier_arrive(int id, int threads, site where)
{
    come(id, threads, false, where);
}

} // namespace emulator
