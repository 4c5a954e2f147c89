// emulator_operand.cpp: the operands of wgmma, from registers and from shared memory by descriptors
// (PTX manual, section "wgmma", "matrix descriptor" and "strides").
#include "emulator.h"
#include "emulator_block.h"
#include "half.h"

namespace emulator
{

struct descriptor {
    uint32_t start, leading, stride;
};

// The running thread's warpgroup reads its own block's memory.
static descriptor decode(uint64_t bits, site where)
{
    const uint64_t known = 0xc0003fff3fff3fff;
    if (bits >> 62 != 1 || bits & ~known)
        fail(where,
             "multiplies by descriptor %016llx: the emulator knows the 128-byte swizzle alone",
             static_cast<unsigned long long>(bits));
    return {own_memory() + static_cast<uint32_t>(bits & 0x3fff) * 16,
            static_cast<uint32_t>(bits >> 16 & 0x3fff) * 16,
            static_cast<uint32_t>(bits >> 32 & 0x3fff) * 16};
}

// Notes that the product reads the 16 bytes at `address`, if all four warps may.
static void note_read(block_state &block, const warp_state *warps, product &p, uint32_t address)
{
    if (outside(block, address, 16))
        fail(p.where, "multiplies by bytes %u to %u of shared memory, which has %u", address,
             address + 15, block.shared_bytes);
    const uint32_t index = address / async_use_bytes;
    for (uint32_t known : p.reads)
        if (known == index) return;
    const async_use &use = block.uses[index];
    if (use.copy == async_use::nothing && use.writer < 0)
        fail(p.where, "reads byte %u of shared memory, which nobody has written", address);
    if (use.writer >= 0)
        fail(p.where,
             "reads bytes %u to %u of shared memory, to which thread %d stored at line %d: the "
             "emulator knows no fence for that",
             index * async_use_bytes, (index + 1) * async_use_bytes - 1, use.writer,
             use.write_line);
    for (int w = 0; w < group_warps; w++)
        if (!has_waited(warps[w], use))
            fail(p.where,
                 "(for thread %d) reads byte %u of shared memory and has not waited for the copy "
                 "of line %d (thread %d)",
                 warps[w].threads->id, address, use.line, use.thread);
    p.reads.push_back(index);
}

// Eight elements that lie together, as numbers; the swizzle is one of addresses.
static void load_chunk(block_state &block, const warp_state *warps, product &p, bool bf16,
                       uint32_t address, double x[8])
{
    uint16_t bits[8];
    address ^= (address >> 7 & 7) << 4;
    note_read(block, warps, p, address);
    if (block.shadows[address / 2].write_epoch != from_box)
        fail(p.where, "reads byte %u of shared memory, which nobody has written", address);
    memcpy(bits, block.memory.data() + address, sizeof bits);
    for (int i = 0; i < 8; i++) x[i] = bf16 ? bf16_to_float(bits[i]) : fp16_to_float(bits[i]);
}

// Row r of a K-major operand: 16 elements along k, groups of eight rows `stride` bytes apart.
static void load_row(block_state &block, const warp_state *warps, product &p, bool bf16,
                     const descriptor &d, int r, double x[16])
{
    const uint32_t address =
        d.start + static_cast<uint32_t>(r / 8) * d.stride + static_cast<uint32_t>(r % 8) * 128;
    load_chunk(block, warps, p, bf16, address, x);
    load_chunk(block, warps, p, bf16, address + 16, x + 8);
}

void load_a(block_state &block, const warp_state &first, product &p, const wgmma_arguments &args)
{
    if (!args.a) {
        const descriptor d = decode(args.a_descriptor, p.where);
        for (int r = 0; r < 64; r++)
            load_row(block, &first, p, args.bf16, d, r, block.operand_a[r]);
        return;
    }
    for (int t = 0; t < group_size; t++) // a warp's 16 rows as mma m16n8k16 has them
        for (int r = 0; r < 4; r++)
            for (int e = 0; e < 2; e++) {
                const int lane = t % warp_size, row = t / warp_size * 16 + lane / 4 + r % 2 * 8;
                const uint16_t bits = static_cast<uint16_t>(p.a_was[t][r] >> (16 * e));
                block.operand_a[row][lane % 4 * 2 + e + r / 2 * 8] =
                    args.bf16 ? bf16_to_float(bits) : fp16_to_float(bits);
            }
}

void load_b(block_state &block, const warp_state &first, product &p, const wgmma_arguments &args)
{
    const descriptor d = decode(args.b_descriptor, p.where);
    double x[16];
    if (!args.b_transposed)
        for (int n = 0; n < args.n; n++) {
            load_row(block, &first, p, args.bf16, d, n, x);
            for (int k = 0; k < 16; k++) block.operand_b[k][n] = x[k];
        }
    else // a row of 128 bytes holds 64 elements along n; the next 64 are `leading` bytes on
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < args.n; n += 8)
                load_chunk(block, &first, p, args.bf16,
                           d.start + static_cast<uint32_t>(n / 64) * d.leading +
                               static_cast<uint32_t>(k / 8) * d.stride +
                               static_cast<uint32_t>(k % 8 * 128 + n % 64 * 2),
                           &block.operand_b[k][n]);
}

} // namespace emulator
