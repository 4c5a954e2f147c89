// emulator_shared.cpp: shared memory that remembers who touched what, and counts bank conflicts.
//
// Two accesses of different threads, at least one of them a write, need a barrier between them.
// A warp counts its barriers in ticks, and keeps in its clock up to which tick of each other warp
// all has happened before: a thread is safe from what lies below that, and within its own warp from
// what happened before the last __syncwarp.
#include "emulator.h"
#include "emulator_block.h"

namespace emulator
{

bool outside(const block_state &block, uint32_t address, uint64_t bytes)
{
    return address % (1u << cluster_shift) + bytes > block.shared_bytes ||
           address >> cluster_shift >= static_cast<uint32_t>(block.cluster);
}

void check_own(uint32_t address, const char *what, site where)
{
    if (static_cast<int>(address >> cluster_shift) != current_thread->rank)
        fail(where, "%s at %u, in the other block's shared memory", what, address);
}

static shadow *shadows_of(const thread_state &thread, uint32_t address, uint32_t bytes, site where)
{
    block_state &block = *current_block;
    if (outside(block, address, bytes))
        fail(where, "(for thread %d) touches bytes %u to %u of shared memory, which has %u",
             thread.id, address, address + bytes - 1, block.shared_bytes);
    check_own(address, "touches bytes", where);
    if (address % bytes)
        fail(where, "(for thread %d) touches %u bytes at address %u of shared memory: not aligned",
             thread.id, bytes, address);
    return &block.shadows[address / 2];
}

bool unordered(const thread_state &thread, int other, uint32_t then)
{
    const warp_state &warp = *thread.warp;
    const int other_warp = other / warp_size;
    return then >= (other_warp == warp.index ? warp.epoch : warp.clock.ticks[other_warp]);
}

// A thread that stands for those that read last; -1 if they are of several warps.
static int last_reader(const shadow &s)
{
    return s.reader == all_readers      ? -1
           : s.reader & readers_of_warp ? (s.reader & ~readers_of_warp) * warp_size
                                        : s.reader;
}

// Whether they are not yet ordered before what `thread` does now; of several warps only a barrier
// of the whole block tells.
static bool still_read(const thread_state &thread, const shadow &s)
{
    const int someone = last_reader(s);
    return someone < 0 ? s.read_epoch >= current_block->epoch[thread.rank]
                       : unordered(thread, someone, s.read_epoch);
}

void shared_check_read(thread_state &thread, uint32_t address, uint32_t bytes, site where)
{
    shadow *s = shadows_of(thread, address, bytes, where);
    const uint16_t id = static_cast<uint16_t>(thread.id);
    const uint32_t now = thread.warp->now();
    for (uint32_t i = 0; i < (bytes + 1) / 2; i++) {
        if (s[i].write_epoch == in_flight)
            fail(where,
                 "(for thread %d) reads byte %u of shared memory, to which a copy of thread %d "
                 "(line %d) is on its way: it has not waited for it",
                 thread.id, address + 2 * i, s[i].writer, s[i].write_line);
        if (!s[i].write_epoch)
            fail(where, "(for thread %d) reads byte %u of shared memory, which nobody has written",
                 thread.id, address + 2 * i);
        if (s[i].write_epoch == from_box)
            box_check_read(thread, address + 2 * i, where);
        else if (s[i].writer != id && unordered(thread, s[i].writer, s[i].write_epoch))
            fail(where,
                 "(for thread %d) reads byte %u of shared memory, which thread %d wrote at "
                 "line %d, with no barrier between",
                 thread.id, address + 2 * i, s[i].writer, s[i].write_line);

        const int someone = last_reader(s[i]);
        if (s[i].reader == id || !still_read(thread, s[i]))
            s[i].reader = id;
        else if (someone < 0 || someone / warp_size != thread.warp->index)
            s[i].reader = all_readers;
        else
            s[i].reader = static_cast<uint16_t>(readers_of_warp | thread.warp->index);
        s[i].read_epoch = now;
        s[i].read_line = static_cast<uint16_t>(where.line);
    }
}

void shared_check_write(thread_state &thread, uint32_t address, uint32_t bytes, site where)
{
    shadow *s = shadows_of(thread, address, bytes, where);
    const uint16_t id = static_cast<uint16_t>(thread.id);
    const uint32_t now = thread.warp->now();
    for (uint32_t i = 0; i < (bytes + 1) / 2; i++) {
        if (s[i].write_epoch == in_flight)
            fail(where,
                 "writes byte %u of shared memory, to which a copy of thread %d (line %d) is on "
                 "its way",
                 address + 2 * i, s[i].writer, s[i].write_line);
        if (s[i].write_epoch == from_box)
            box_check_write(thread, address + 2 * i, where);
        else if (s[i].write_epoch && s[i].writer != id &&
                 unordered(thread, s[i].writer, s[i].write_epoch))
            fail(where,
                 "writes byte %u of shared memory, which thread %d wrote at line %d, with "
                 "no barrier between",
                 address + 2 * i, s[i].writer, s[i].write_line);
        if (s[i].read_epoch && s[i].reader != id) {
            const int someone = last_reader(s[i]);
            const bool race = still_read(thread, s[i]), several = s[i].reader & readers_of_warp;
            if (race && someone < 0)
                fail(where,
                     "writes byte %u of shared memory, which threads of several warps read "
                     "(line %d), with no barrier between",
                     address + 2 * i, s[i].read_line);
            if (race)
                fail(where,
                     "writes byte %u of shared memory, which thread %d%s read at line %d, "
                     "with no barrier between",
                     address + 2 * i, someone, several ? " or its neighbours" : "", s[i].read_line);
        }
        s[i].write_epoch = now;
        s[i].writer = id;
        s[i].write_line = static_cast<uint16_t>(where.line);
    }
    async_use &use = current_block->uses[address / async_use_bytes];
    use.writer = thread.id;
    use.write_line = where.line;
}

static void log_access(thread_state &thread, uint32_t address, uint32_t bytes, site where)
{
    const int i = thread.accesses++;
    if (i >= logged_accesses) return; // a long stretch without meeting: the first ones stand for it
    access_log &entry = thread.warp->log[i];
    entry.address[thread.lane] = address;
    entry.bytes[thread.lane] = bytes;
    entry.line[thread.lane] = where.line;
    entry.lanes |= 1u << thread.lane;
}

void shared_read(void *to, uint32_t address, uint32_t bytes, site where)
{
    shared_check_read(*current_thread, address, bytes, where);
    log_access(*current_thread, address, bytes, where);
    memcpy(to, current_block->memory.data() + address, bytes);
}

void shared_write(uint32_t address, const void *from, uint32_t bytes, site where)
{
    shared_check_write(*current_thread, address, bytes, where);
    log_access(*current_thread, address, bytes, where);
    memcpy(current_block->memory.data() + address, from, bytes);
}

void copy_async(uint32_t address, const void *from, uint32_t bytes, site where)
{
    thread_state &thread = *current_thread;
    pending_copy copy = {address, bytes, where, {}};
    if (bytes > sizeof copy.data) fail(where, "copies %u bytes at once", bytes);
    if (from) memcpy(copy.data, from, bytes);
    shared_check_write(thread, address, bytes, where); // it may land from now on
    log_access(thread, address, bytes, where);
    memset(current_block->memory.data() + address, 0xff, bytes); // NaN in every type
    shadow *s = shadows_of(thread, address, bytes, where);
    for (uint32_t i = 0; i < bytes / 2; i++) s[i].write_epoch = in_flight;
    thread.copies.push_back(copy);
}

void wait_for_copies(site where)
{
    thread_state &thread = *current_thread;
    for (const pending_copy &copy : thread.copies) {
        shadow *s = shadows_of(thread, copy.address, copy.bytes, where);
        for (uint32_t i = 0; i < copy.bytes / 2; i++) s[i].write_epoch = thread.warp->now();
        memcpy(current_block->memory.data() + copy.address, copy.data, copy.bytes);
    }
    thread.copies.clear();
}

void check_copies_waited_for()
{
    const thread_state &thread = *current_thread;
    if (!thread.copies.empty())
        fail(thread.copies[0].where, "returns without waiting for this copy");
}

int bank_turns(const uint32_t *address, int count, uint32_t bytes)
{
    uint32_t words[warp_size * 4];
    int used = 0, in_bank[32] = {}, turns = 1;
    for (int i = 0; i < count; i++)
        for (uint32_t w = address[i] / 4; w <= (address[i] + bytes - 1) / 4; w++) {
            bool seen = false; // lanes that want the same word share it
            for (int j = 0; j < used && !seen; j++) seen = words[j] == w;
            if (seen) continue;
            words[used++] = w;
            if (++in_bank[w % 32] > turns) turns = in_bank[w % 32];
        }
    return turns;
}

void settle_accesses(block_state &block, warp_state &warp)
{
    for (int i = 0; i < logged_accesses && warp.log[i].lanes; i++) {
        access_log &entry = warp.log[i];
        // A warp moves at most 128 bytes at once: 16-byte accesses go in groups of eight lanes.
        const int first = __builtin_ctz(entry.lanes);
        const int group = entry.bytes[first] == 16 ? 8 : entry.bytes[first] == 8 ? 16 : 32;
        for (int from = 0; from < warp_size; from += group) {
            uint32_t address[warp_size];
            int count = 0;
            for (int lane = from; lane < from + group; lane++)
                if (entry.lanes >> lane & 1 && entry.line[lane] == entry.line[first])
                    address[count++] = entry.address[lane];
            if (!count) continue;
            block.report.shared_accesses++;
            block.report.bank_conflicts += bank_turns(address, count, entry.bytes[first]) - 1;
        }
        entry.lanes = 0;
    }
    for (int lane = 0; lane < warp_size; lane++) warp.threads[lane].accesses = 0;
}

} // namespace emulator
