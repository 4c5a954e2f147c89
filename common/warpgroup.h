// warpgroup.h: tiles that a copy engine fills, rings of them, and products of a warpgroup.
//
// Copies. One thread names a box of a tensor; a copy engine fetches it, swizzles it as in async.h,
// and tells an mbarrier how many bytes have come. A ring of tiles has two mbarriers a place:
// `full`, for which readers wait, and `empty`, for which the one who fills it waits. An mbarrier
// goes through phases; who waits names the parity of the phase:
//
//     place 0    fill       wait, read, release      fill       wait, read, release    ...
//     full       phase 0 ends: parity 0              phase 1 ends: parity 1
//     empty                 phase 0 ends: parity 0              phase 1 ends: parity 1
//
// The first fill does not wait: what comes before phase 0 counts as complete, with parity 1.
//
// Products. A warpgroup, four warps, multiplies 64 rows at a time, 16 of each warp, in fragment.h's
// layout:
//
//     rows 0-15    warp 0     c [16, n] each, tiles of 16 x 8 side by side
//     rows 16-31   warp 1     a left operand in registers: [16, 16] of each
//     rows 32-47   warp 2     right operands, and left ones if not in registers, come from shared
//     rows 48-63   warp 3     memory, for all four at once
//
// A product runs in the background: until wait_for_product nobody may touch what it reads or
// writes.
#ifndef WARPGROUP_H
#define WARPGROUP_H

#include "hopper.h"

namespace
{

__device__ inline int warpgroup_index()
{
    return uniform(static_cast<int>(threadIdx.x) / 128);
}

// Of the four warps of a warpgroup; barrier 0 is the block's.
__device__ inline void warpgroup_barrier(site where = site())
{
    named_barrier(1 + warpgroup_index(), 128, where);
}

// ---- tiles that a copy engine fills ----

// [rows, cols] of 16-bit elements in chunks of 64 columns, each [rows, 64], one after the other:
// rows of 128 bytes, swizzled. Starts at a multiple of 1024 bytes.
template <class T, int rows, int cols> struct box_tile {
    static constexpr uint32_t chunk_bytes = rows * 128, bytes = cols / 64 * chunk_bytes;
    uint32_t start;
    __device__ explicit box_tile(uint32_t start) : start(start)
    {
    }
    __device__ uint32_t end() const
    {
        return start + bytes;
    }
    // Where the tile lies, for wgmma: its address and the distance from one chunk to the next, in
    // units of 16 bytes, as the low word of a descriptor.
    __device__ uint32_t low_word() const // less the bits of an address that say whose it is
    {
        return shared_address(start) % (1 << 18) / 16 | chunk_bytes / 16 << 16;
    }
};

// The high word says that 8 rows are 1024 bytes and that rows are swizzled over their 128.
__device__ inline uint64_t descriptor(uint32_t low_word, uint32_t bytes_further)
{
    return uint64_t{1 << 30 | 1024 / 16} << 32 | (low_word + bytes_further / 16);
}

// Has the copy engine fetch a tile, rows past the end of the plane being zeros. One thread calls;
// of two blocks one in each, for the same tile: each fetches half of the chunks, for both.
template <int blocks, class T, int rows, int cols>
__device__ inline void copy_tile(box_tile<T, rows, cols> tile, const tensor_map &map, int row,
                                 int plane, uint32_t full, site where = site())
{
    static_assert(cols / 64 % blocks == 0, "blocks fetch as many chunks each");
    mbarrier_expect(full, tile.bytes, where);
    const int first = blocks > 1 ? static_cast<int>(blockIdx.x % 2) : 0;
    for (int chunk = first; chunk < cols / 64; chunk += blocks) {
        const uint32_t to = tile.start + static_cast<uint32_t>(chunk) * tile.chunk_bytes;
        if (blocks > 1)
            copy_box_to_both(to, map, 64 * chunk, row, plane, full, where);
        else
            copy_box(to, map, 64 * chunk, row, plane, full, where);
    }
}

// Which place of a ring comes next, and the parity of its round.
template <int places> struct turn {
    int place = 0, parity = 0;
    __device__ void next()
    {
        if (++place < places) return;
        place = 0;
        parity ^= 1;
    }
};

// `places` tiles, filled by one thread and read by some warpgroups. Two blocks fill theirs with the
// same tiles, together: a place is free when it is in both.
template <class T, int rows, int cols, int places, int blocks = 1> struct ring {
    using tile_type = box_tile<T, rows, cols>;
    // The mbarriers follow the tiles; the next tile wants a multiple of 1024 again.
    static constexpr uint32_t barriers = places * tile_type::bytes, bytes = barriers + 1024;
    uint32_t start;
    __device__ explicit ring(uint32_t start) : start(start)
    {
    }
    __device__ uint32_t end() const
    {
        return start + bytes;
    }
    __device__ tile_type tile(turn<places> at) const
    {
        return tile_type(start + static_cast<uint32_t>(at.place) * tile_type::bytes);
    }
    __device__ uint32_t full(turn<places> at) const
    {
        return start + barriers + static_cast<uint32_t>(at.place) * 16;
    }
    __device__ uint32_t empty(turn<places> at) const
    {
        return full(at) + 8;
    }
    // For open_rings.
    __device__ void init(int readers, site where = site()) const
    {
        turn<places> at;
        for (int i = 0; i < places; i++, at.next()) {
            mbarrier_init(full(at), 1, where);
            mbarrier_init(empty(at), readers * blocks, where);
        }
    }
    // The one who fills: waits until the place is free.
    __device__ void fill(turn<places> at, const tensor_map &map, int row, int plane,
                         site where = site()) const
    {
        mbarrier_wait(empty(at), at.parity ^ 1, where);
        copy_tile<blocks>(tile(at), map, row, plane, full(at), where);
    }
    // A reader: the tile, once it is there.
    __device__ tile_type wait(turn<places> at, site where = site()) const
    {
        mbarrier_wait(full(at), at.parity, where);
        return tile(at);
    }
    // A warpgroup is done with it: one of its threads says so, and one of another warp to the other
    // block.
    __device__ void release(turn<places> at, site where = site()) const
    {
        if (threadIdx.x % 128 == 0) mbarrier_arrive(empty(at), where);
        if (blocks > 1 && threadIdx.x % 128 == 32) mbarrier_arrive_at_peer(empty(at), where);
    }
    // A warpgroup does not need it. All of it has looked before it is released: else the next phase
    // could end before a late warp had, which would wait for ever. Elsewhere a product between wait
    // and release keeps the four warps together.
    __device__ void pass(turn<places> at, site where = site()) const
    {
        (void)wait(at, where);
        warpgroup_barrier(where);
        release(at, where);
    }
    // A warpgroup needs none any more, from `at` on. One thread waits until what it has released is
    // free, or it would arrive twice in one phase, and is counted no longer.
    __device__ void leave(turn<places> at, site where = site()) const
    {
        static_assert(blocks == 1, "the other block would have to know");
        if (threadIdx.x % 128 > 0) return;
        for (int i = 0; i < places; i++, at.next()) {
            mbarrier_wait(empty(at), at.parity ^ 1, where);
            mbarrier_arrive_drop(empty(at), where);
        }
    }
};

// All threads call, of two blocks those of both, before any of them uses a ring.
template <class A, class T, int rows, int cols, int places, int blocks>
__device__ inline void open_rings(A a, ring<T, rows, cols, places, blocks> b,
                                  ring<T, rows, cols, places, blocks> c, int readers,
                                  site where = site())
{
    if (threadIdx.x == 0) {
        a.init(readers, where);
        b.init(readers, where);
        c.init(readers, where);
        ::fence_barrier_init(where); // ::, or the emulator's own is found as well
    }
    if (blocks > 1)
        ::cluster_barrier(where);
    else
        ::barrier(where);
}

// ---- which tile a block has, when blocks stay until all is done ----

// Round by round, of the tiles of [planes, n] rows, each as many rows as all consumers take, 64
// each. Two blocks have one together.
//
// Last first, where a tile takes as long as there are rows before it: side by side blocks have the
// last tiles of as many planes as make four rounds: what more of them read would leave the L2
// before it is read again. Every other round goes the other way, so that no block has the first of
// all rounds; the next planes begin the other way round.
//
// Else all tiles take as long, side by side blocks have those of one plane, and what does not fill
// a round is cut into tiles of fewer rows, as few as make one round: fewer consumers take less
// time. They come last, so a consumer that has no rows of a tile will never have any. For two
// blocks nothing is cut.
struct tile_of_round {
    uint32_t planes, tiles, together; // tiles of a plane; planes that come together
    uint32_t most, large, fewer; // rows / 64 of the first `large` tiles of a plane, of the others
    uint32_t blocks, takers, taker; // of a tile; who take tiles, blocks or pairs; which this is
    uint32_t group = 0, round = 0;
    bool last_first, exists;
    int plane = 0, row = 0, end = 0; // the tile: the block's first row; one past the last, of both
    __device__ tile_of_round(int n, int planes, int consumers, int blocks, bool last_first)
        : planes(static_cast<uint32_t>(planes)), together(this->planes),
          most(static_cast<uint32_t>(consumers * blocks)), fewer(most),
          blocks(static_cast<uint32_t>(blocks)), takers(gridDim.x / this->blocks),
          taker(blockIdx.x / this->blocks), last_first(last_first)
    {
        const uint32_t units = static_cast<uint32_t>(n - 1) / 64 + 1;
        large = tiles = (units - 1) / most + 1;
        if (!last_first && blocks == 1) cut_last_round(units);
        while (last_first && together > 1 && tiles * together > 4 * takers)
            together = (together + 1) / 2;
        find();
    }
    __device__ void cut_last_round(uint32_t units)
    {
        const uint32_t full_rounds =
            static_cast<uint32_t>(uint64_t{planes} * units / most / takers);
        const uint32_t fit = full_rounds * takers / planes;
        large = fit < units / most ? fit : units / most;
        const uint32_t rest = units - large * most;
        for (fewer = 1; fewer < most; fewer++)
            if (planes * ((rest + fewer - 1) / fewer) <= takers) break;
        tiles = large + (rest + fewer - 1) / fewer;
    }
    __device__ void next()
    {
        round++;
        find();
    }
    __device__ void find()
    {
        for (exists = true; exists; group++, round = 0, exists = group * together < planes) {
            const uint32_t first = group * together;
            const uint32_t here = planes - first < together ? planes - first : together;
            const bool turned = (round + group) % 2;
            uint32_t at = round * takers + (turned ? takers - 1 - taker : taker);
            if (at >= tiles * here) continue;
            uint32_t tile = tiles - 1 - at / here, in_group = at % here;
            if (!last_first) {
                const bool is_large = at < large * here;
                const uint32_t alike = is_large ? large : tiles - large;
                at -= is_large ? 0 : large * here;
                tile = at % alike + (is_large ? 0 : large), in_group = at / alike;
            }
            const uint32_t of_large = tile < large ? tile : large;
            const uint32_t unit = of_large * most + (tile - of_large) * fewer;
            const uint32_t own = blockIdx.x % blocks * (most / blocks); // the second's half of two
            row = static_cast<int>(64 * (unit + own));
            end = static_cast<int>(64 * (unit + (tile < large ? most : fewer)));
            plane = static_cast<int>(first + in_group);
            return;
        }
    }
};

// ---- products of a warpgroup: `rows` is 16, a warp's share of 64 ----

// s = q k^T, begun: q's rows first_row to first_row + 63.
template <class T, int rows_q, int cols, int d>
__device__ inline void start_product_abt(accumulator<16, cols> &s, box_tile<T, rows_q, d> q,
                                         int first_row, box_tile<T, cols, d> k, site where = site())
{
    const uint32_t a = q.low_word() + static_cast<uint32_t>(first_row) * 128 / 16;
    const uint32_t b = k.low_word();
    UNROLL for (int i = 0; i < cols / 2; i++) pin(s.c[0][i / 4][i % 4]);
    wgmma_fence(where);
    UNROLL for (uint32_t i = 0; i < d / 16; i++) // 16 columns are 32 bytes of a row
        wgmma_abt<cols>(&s.c[0][0][0], descriptor(a, i / 4 * q.chunk_bytes + i % 4 * 32),
                        descriptor(b, i / 4 * k.chunk_bytes + i % 4 * 32), i > 0, T(), where);
    wgmma_commit(where);
}

// acc += p v, begun.
template <class T, int cols, int d>
__device__ inline void start_product(accumulator<16, d> &acc, left_operand<T, 16, cols> &p,
                                     box_tile<T, cols, d> v, site where = site())
{
    const uint32_t b = v.low_word();
    UNROLL for (int i = 0; i < d / 2; i++) pin(acc.c[0][i / 4][i % 4]);
    UNROLL for (int i = 0; i < cols / 4; i++) pin(p.a[0][i / 4][i % 4]);
    wgmma_fence(where);
    UNROLL for (uint32_t i = 0; i < cols / 16; i++) // 16 keys are 16 rows of 128 bytes
        wgmma_ab<d>(&acc.c[0][0][0], p.a[0][i], descriptor(b, i * 16 * 128), T(), where);
    wgmma_commit(where);
}

// Waits until at most `in_flight` of the products begun last are not done: s or acc, and p, of one
// that is, may be touched again.
template <int in_flight, int cols>
__device__ inline void wait_for_product(accumulator<16, cols> &s, site where = site())
{
    wgmma_wait<in_flight>(where);
    UNROLL for (int i = 0; i < cols / 2; i++) pin(s.c[0][i / 4][i % 4]);
}
template <int in_flight, class T, int cols, int d>
__device__ inline void wait_for_product(accumulator<16, d> &acc, left_operand<T, 16, cols> &p,
                                        site where = site())
{
    wait_for_product<in_flight>(acc, where);
    UNROLL for (int i = 0; i < cols / 4; i++) pin(p.a[0][i / 4][i % 4]);
}

// p rounded to a left operand.
template <class T, int cols>
__device__ inline void round_left(left_operand<T, 16, cols> &a, const accumulator<16, cols> &p)
{
    UNROLL for (int i = 0; i < cols / 4; i++)
    {
        const float *c = &p.c[0][i / 2][i % 2 * 2];
        a.a[0][i / 4][i % 4] = round_pair(c[0], c[1], T());
    }
}

} // namespace
#endif
