// emulator_warp.cpp: the operations a warp does together, each by its definition in the PTX manual
// (sections "shfl.sync", "ldmatrix", "mma"), executed once for all 32 lanes.
#include "emulator.h"
#include "emulator_block.h"
#include "half.h"

namespace emulator
{

void warp_barrier(site where)
{
    collective("__syncwarp", where, nullptr, [](block_state &block, warp_state &warp, void **) {
        advance(block, warp);
        warp.epoch = warp.now();
    });
}

struct shuffle_arguments {
    uint32_t value, result;
    int lane_mask;
};

uint32_t shuffle_xor(uint32_t value, int lane_mask, site where)
{
    shuffle_arguments mine = {value, 0, lane_mask};
    collective("a shuffle", where, &mine, [](block_state &, warp_state &, void **all) {
        for (int lane = 0; lane < warp_size; lane++) {
            auto &a = *static_cast<shuffle_arguments *>(all[lane]);
            a.result = static_cast<shuffle_arguments *>(all[lane ^ (a.lane_mask & 31)])->value;
        }
    });
    return mine.result;
}

struct ldmatrix_arguments {
    uint32_t *x;
    uint32_t address;
    bool transposed;
    site where;
};

static void execute_ldmatrix(block_state &block, warp_state &warp, void **all)
{
    for (int i = 0; i < 4; i++) {
        uint16_t matrix[8][8];
        uint32_t address[8];
        for (int row = 0; row < 8; row++) {
            const int lane = 8 * i + row; // the lane that gave this row's address answers for it
            const auto &a = *static_cast<ldmatrix_arguments *>(all[lane]);
            shared_check_read(warp.threads[lane], a.address, 16, a.where);
            memcpy(matrix[row], block.memory.data() + a.address, 16);
            address[row] = a.address;
        }
        block.report.shared_accesses++;
        block.report.bank_conflicts += bank_turns(address, 8, 16) - 1;
        for (int lane = 0; lane < warp_size; lane++) {
            const auto &a = *static_cast<ldmatrix_arguments *>(all[lane]);
            const int r = lane / 4, c = lane % 4 * 2;
            const uint32_t low = a.transposed ? matrix[c][r] : matrix[r][c];
            const uint32_t high = a.transposed ? matrix[c + 1][r] : matrix[r][c + 1];
            a.x[i] = low | high << 16;
        }
    }
}

void ldmatrix_x4(uint32_t x[4], uint32_t address, bool transposed, site where)
{
    ldmatrix_arguments mine = {x, address, transposed, where};
    collective("ldmatrix", where, &mine, execute_ldmatrix);
}

struct mma_arguments {
    float *c;
    const uint32_t *a, *b;
};

// Element e (0 or 1) of a register, as the number it stands for.
template <bool bf16> static float element(uint32_t x, int e)
{
    const uint16_t bits = static_cast<uint16_t>(x >> (16 * e));
    return bf16 ? bf16_to_float(bits) : fp16_to_float(bits);
}

// c [16, 8] += a [16, depth] b [depth, 8]. Where an element lives, with g = lane / 4 and
// t = lane % 4: a register r, element e: row g + 8 (r % 2), column 2 t + e + 8 (r / 2);
// b register r: row 2 t + e + 8 r, column g; c element r: row g + 8 (r / 2), column 2 t + r % 2.
// The products are exact and summed in double; hardware drops bits a float could not hold anyway.
template <int depth, bool bf16> static void execute_mma(block_state &, warp_state &, void **all)
{
    double a[16][depth], b[depth][8], c[16][8];
    for (int lane = 0; lane < warp_size; lane++) {
        const auto &mine = *static_cast<mma_arguments *>(all[lane]);
        const int g = lane / 4, t = lane % 4;
        for (int e = 0; e < 2; e++) {
            for (int r = 0; r < depth / 4; r++)
                a[g + 8 * (r % 2)][2 * t + e + 8 * (r / 2)] = element<bf16>(mine.a[r], e);
            for (int r = 0; r < depth / 8; r++)
                b[2 * t + e + 8 * r][g] = element<bf16>(mine.b[r], e);
        }
        for (int r = 0; r < 4; r++) c[g + 8 * (r / 2)][2 * t + r % 2] = mine.c[r];
    }
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < depth; k++)
            for (int j = 0; j < 8; j++) c[i][j] += a[i][k] * b[k][j];
    for (int lane = 0; lane < warp_size; lane++) {
        const auto &mine = *static_cast<mma_arguments *>(all[lane]);
        const int g = lane / 4, t = lane % 4;
        for (int r = 0; r < 4; r++)
            mine.c[r] = static_cast<float>(c[g + 8 * (r / 2)][2 * t + r % 2]);
    }
}

void mma_m16n8k16_fp16(float c[4], const uint32_t a[4], const uint32_t b[2], site where)
{
    mma_arguments mine = {c, a, b};
    collective("mma m16n8k16", where, &mine, execute_mma<16, false>);
}

void mma_m16n8k16_bf16(float c[4], const uint32_t a[4], const uint32_t b[2], site where)
{
    mma_arguments mine = {c, a, b};
    collective("mma m16n8k16", where, &mine, execute_mma<16, true>);
}

void mma_m16n8k8_fp16(float c[4], const uint32_t a[2], const uint32_t b[1], site where)
{
    mma_arguments mine = {c, a, b};
    collective("mma m16n8k8", where, &mine, execute_mma<8, false>);
}

// ---- a warpgroup's registers --------------------------------------------------------------------

struct register_arguments {
    int count;
    bool increase;
    site where;
};

static void execute_set_registers(block_state &block, warp_state &first, void **all)
{
    const auto &one = *static_cast<register_arguments *>(all[0]);
    for (int t = 1; t < group_size; t++) {
        const auto &other = *static_cast<register_arguments *>(all[t]);
        if (other.count != one.count || other.increase != one.increase)
            fail(one.where, "sets other registers than thread %d of its warpgroup",
                 first.threads[t].id);
    }
    warpgroup_state &group = block.groups[static_cast<size_t>(first.index / group_warps)];
    bool &before = one.increase ? group.increased : group.decreased;
    if (before) fail(one.where, "%s its registers again", one.increase ? "increases" : "decreases");
    before = true;
    group.registers = one.count;
    const int groups = static_cast<int>(block.groups.size()) / block.cluster;
    const int rank = first.threads->rank;
    int sum = 0;
    for (int g = rank * groups; g < (rank + 1) * groups; g++) {
        const int registers = block.groups[static_cast<size_t>(g)].registers;
        if (!registers) return; // has what the launch gave it, which the emulator does not know
        sum += registers;
    }
    // A launch gives every thread as many, in eights; what it could not hand out stays out.
    const int most = 512 / groups / 8 * 8 * groups;
    if (sum > most)
        fail(
            one.where,
            "brings the block's registers to %d for each of 128 threads: it can have been launched "
            "with %d",
            sum, most);
}

void set_registers(int count, bool increase, site where)
{
    if (count < 24 || count > 256 || count % 8)
        fail(where, "sets %d registers: 24 to 256, a multiple of 8", count);
    register_arguments mine = {count, increase, where};
    collective("set_registers", where, &mine, execute_set_registers, group_warps);
}

} // namespace emulator
