// emulator_box.cpp: copies of boxes, which arrive when the block's random choice has it so, and the
// order between them and all else that touches their target (PTX manual, sections
// "cp.async.bulk.tensor" and "async proxy").
//
// For each 1024 bytes of shared memory an async_use remembers the last copy, in which phase of
// which mbarrier it arrived, and who has read it. To read, a warp must know of that phase; to copy
// there again, a warp must know that the reads are done. Bytes that ordinary stores wrote are out
// of the reach of copies and wgmma: hardware asks for a fence that the emulator does not have.
#include "emulator.h"
#include "emulator_block.h"

namespace emulator
{

bool has_waited(const warp_state &warp, const async_use &use)
{
    return use.copy == async_use::arrived && warp.clock.phases[use.mbarrier] > use.phase;
}

// Fails if the last copy to these bytes, or what has read them since, is not ordered before what
// `thread` does now.
void check_box_released(const thread_state &thread, const async_use &use, site where)
{
    const vector_clock &clock = thread.warp->clock;
    for (int g = 0; g < max_groups; g++) {
        const auto &reads = use.group[g];
        bool done = !reads.line;
        for (int w = 0; w < group_warps; w++) // a product is done for all warps of its group
            done |= !reads.products && clock.ticks[g * group_warps + w] > reads.at[w];
        if (!done)
            fail(where, "(for thread %d) overwrites what thread %d (line %d) still reads",
                 thread.id, reads.thread, reads.line);
    }
    for (const auto &read : use.warp)
        if (read.thread != thread.id && unordered(thread, read.thread, read.at))
            fail(where, "(for thread %d) overwrites what thread %d (line %d) still reads",
                 thread.id, read.thread, read.line);
    if (use.copy != async_use::nothing && !has_waited(*thread.warp, use))
        fail(where,
             "(for thread %d) overwrites what the copy of thread %d (line %d) brings, and has not "
             "waited for it",
             thread.id, use.thread, use.line);
}

void box_check_read(thread_state &thread, uint32_t address, site where)
{
    async_use &use = current_block->uses[address / async_use_bytes];
    if (!has_waited(*thread.warp, use))
        fail(where,
             "(for thread %d) reads byte %u of shared memory and has not waited for the copy of "
             "line %d (thread %d)",
             thread.id, address, use.line, use.thread);
    use.warp[thread.warp->index] = {thread.warp->now(), thread.id, where.line};
}

void box_check_write(thread_state &thread, uint32_t address, site where)
{
    check_box_released(thread, current_block->uses[address / async_use_bytes], where);
}

// Whether the box, and the memory it goes to, are what hardware takes.
static void check_box(uint32_t to, const tensor_map &map, int col, int row, int plane, site where)
{
    const block_state &block = *current_block;
    if (map.cols < 64 || map.cols % 64 || map.box_rows < 1 || map.box_rows > 256 ||
        map.planes < 1 || map.rows < 1 || reinterpret_cast<uintptr_t>(map.base) % 16)
        fail(where,
             "copies boxes of %d rows from %d columns at %p: 1 to 256, a multiple of 64, at a "
             "multiple of 16",
             map.box_rows, map.cols, map.base);
    if (row < 0 || col < 0 || col % 64 || col >= map.cols || plane < 0 || plane >= map.planes)
        fail(where, "copies the box at plane %d, row %d, column %d of [%lld, %lld, %d]", plane, row,
             col, static_cast<long long>(map.planes), static_cast<long long>(map.rows), map.cols);
    const uint32_t bytes = static_cast<uint32_t>(map.box_rows) * 128;
    if (to % 1024) fail(where, "copies a box to %u: not a multiple of 1024", to);
    if (outside(block, to, bytes))
        fail(where, "copies a box to bytes %u to %u of shared memory, which has %u", to,
             to + bytes - 1, block.shared_bytes);
    if (block.finished[to >> cluster_shift] == block.block_threads)
        fail(where, "copies a box to %u, to a block that has ended", to);
    for (const mbarrier &m : block.mbarriers)
        if (m.address >= to && m.address < to + bytes)
            fail(where, "copies a box over the mbarrier at %u", m.address);
}

static void start_box(uint32_t to, const tensor_map &map, int col, int row, int plane,
                      uint32_t address, site where)
{
    block_state &block = *current_block;
    const thread_state &thread = *current_thread;
    if (block.early && !thread.waited_for_launches)
        fail(where, "(for thread %d) copies a box, and has not waited for the launches before this",
             thread.id);
    check_box(to, map, col, row, plane, where);
    const mbarrier &m = find_mbarrier(address, true, where);
    const uint32_t bytes = static_cast<uint32_t>(map.box_rows) * 128;
    for (uint32_t u = to / async_use_bytes; u <= (to + bytes - 1) / async_use_bytes; u++) {
        async_use &use = block.uses[u];
        check_box_released(thread, use, where);
        if (use.writer >= 0)
            fail(where,
                 "copies a box over bytes that thread %d wrote at line %d: the emulator knows no "
                 "fence for that",
                 use.writer, use.write_line);
        use = {};
        use.copy = async_use::on_its_way;
        use.writer = -1;
        use.mbarrier = m.index;
        use.thread = thread.id;
        use.line = where.line;
    }
    memset(block.memory.data() + to, 0xff, bytes); // NaN in every type
    for (uint32_t i = to / 2; i < (to + bytes) / 2; i++)
        block.shadows[i] = {
            in_flight, 0, static_cast<uint16_t>(thread.id), 0, static_cast<uint16_t>(where.line),
            0};
    block.boxes.push_back({to, map, col, row, plane, m.index, thread.id, where});
}

void copy_box(uint32_t to, const tensor_map &map, int col, int row, int plane, uint32_t address,
              site where)
{
    start_box(to, map, col, row, plane, address, where);
    let_others_run();
}

void copy_box_to_both(uint32_t to, const tensor_map &map, int col, int row, int plane,
                      uint32_t address, site where)
{
    start_box(to, map, col, row, plane, address, where);
    start_box(peer(to), map, col, row, plane, peer(address), where);
    let_others_run();
}

void wait_for_launches_before(site)
{
    current_thread->waited_for_launches = true;
}

void deliver_box(block_state &block, size_t i)
{
    const box_copy box = block.boxes[i];
    block.boxes[i] = block.boxes.back();
    block.boxes.pop_back();
    const tensor_map &map = box.map;
    const auto *from = static_cast<const unsigned char *>(map.base);
    for (int r = 0; r < map.box_rows; r++) {
        unsigned char *to = block.memory.data() + box.to + r * 128;
        const int64_t row = int64_t{box.row} + r;
        const int64_t element = (box.plane * map.rows + row) * map.cols + box.col;
        for (int c = 0; c < 8; c++) // a row past the end is not read
            if (row < map.rows)
                memcpy(to + (c ^ r % 8) * 16, from + element * 2 + c * 16, 16);
            else
                memset(to + c * 16, 0, 16);
    }
    mbarrier &m = block.mbarriers[static_cast<size_t>(box.mbarrier)];
    const uint32_t bytes = static_cast<uint32_t>(map.box_rows) * 128;
    for (uint32_t s = box.to / 2; s < (box.to + bytes) / 2; s++)
        block.shadows[s].write_epoch = from_box;
    for (uint32_t u = box.to / async_use_bytes; u <= (box.to + bytes - 1) / async_use_bytes; u++) {
        block.uses[u].copy = async_use::arrived;
        block.uses[u].phase = m.phase;
    }
    mbarrier_receive(block, m, bytes);
}

void check_boxes_waited_for()
{
    const block_state &block = *current_block;
    const int rank = current_thread->rank;
    if (block.finished[rank] + 1 < block.block_threads) return;
    for (const box_copy &box : block.boxes)
        if (static_cast<int>(box.to >> cluster_shift) == rank)
            fail(box.where, "ends the block with this copy of thread %d on its way", box.thread);
    for (size_t u = 0; u < block.uses.size(); u++) {
        const async_use &use = block.uses[u];
        if (static_cast<int>(u * async_use_bytes >> cluster_shift) != rank) continue;
        bool waited = use.copy == async_use::nothing;
        for (const warp_state &warp : block.warps) waited |= has_waited(warp, use);
        if (!waited)
            fail(current_thread->where,
                 "ends the block, and nobody has waited for the copy of thread %d (line %d)",
                 use.thread, use.line);
    }
}

} // namespace emulator
