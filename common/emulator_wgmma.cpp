// emulator_wgmma.cpp: products of a warpgroup, which go on in the background (PTX manual, section
// "wgmma.mma_async").
//
// A product is computed when it is issued, but what it gives is kept aside until the wgmma_wait
// that covers it. Until then its accumulators are NaN of one pattern, by which an instruction that
// touches them shows; a copy of the operands in registers shows one that changes those; and its
// operands in shared memory count as being read.
#include "emulator.h"
#include "emulator_block.h"

namespace emulator
{

// What the accumulators of a product in flight hold: a signalling NaN, so that arithmetic changes
// it.
static const uint32_t not_yet = 0xffbfffff;

static uint32_t bits_of(const float &x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// ---- accumulators -------------------------------------------------------------------------------

// Calls f(thread, register, row, column) for all elements of c [64, n].
template <class F> static void for_each_element(int n, F f)
{
    for (int t = 0; t < group_size; t++)
        for (int i = 0; i < n / 2; i++) {
            const int lane = t % warp_size, row = t / warp_size * 16 + lane / 4 + i / 2 % 2 * 8;
            f(t, i, row, i / 4 * 8 + lane % 4 * 2 + i % 2);
        }
}

static void check_untouched(const warp_state &first, const accumulator &acc, site where)
{
    for (int t = 0; t < group_size; t++)
        for (int i = 0; i < acc.n / 2; i++)
            if (bits_of(acc.c[t][i]) != not_yet)
                fail(where,
                     "finds that thread %d has touched the accumulators of a product in flight "
                     "(line %d): element %d",
                     first.threads[t].id, acc.where.line, i);
}

// What is kept aside for these accumulators; from their registers if no product in flight adds to
// them.
static accumulator &accumulator_of(warpgroup_state &group, const warp_state &first, void **all)
{
    const auto &mine = *static_cast<wgmma_arguments *>(all[0]);
    accumulator next = {mine.n, 0, mine.where, {}, {}};
    for (int t = 0; t < group_size; t++) next.c[t] = static_cast<wgmma_arguments *>(all[t])->c;
    for (accumulator &acc : group.accumulators) {
        if (acc.n == mine.n && !memcmp(acc.c, next.c, sizeof acc.c)) {
            check_untouched(first, acc, mine.where);
            return acc;
        }
        for (int t = 0; t < group_size; t++)
            if (acc.c[t] < next.c[t] + mine.n / 2 && next.c[t] < acc.c[t] + acc.n / 2)
                fail(mine.where,
                     "(for thread %d) adds to some of the accumulators of a product in flight "
                     "(line %d), not to the same",
                     first.threads[t].id, acc.where.line);
    }
    for (int t = 0; t < group_size; t++)
        if (!first.threads[t].fenced)
            fail(mine.where,
                 "(for thread %d) needs wgmma_fence: its accumulators have none since the last "
                 "wgmma_wait",
                 first.threads[t].id);
    group.accumulators.push_back(next);
    accumulator &acc = group.accumulators.back();
    acc.values.resize(static_cast<size_t>(64 * acc.n));
    for_each_element(acc.n, [&](int t, int i, int row, int column) {
        acc.values[static_cast<size_t>(row * acc.n + column)] = acc.c[t][i];
        memcpy(&acc.c[t][i], &not_yet, sizeof not_yet);
    });
    return acc;
}

// The products are exact and summed in double, as those of mma; eight columns at a time, so that
// the sums stay in registers.
static void multiply(block_state &block, accumulator &acc, bool accumulate)
{
    for (int row = 0; row < 64; row++)
        for (int from = 0; from < acc.n; from += 8) {
            float *c = acc.values.data() + row * acc.n + from;
            double sum[8];
            for (int j = 0; j < 8; j++) sum[j] = accumulate ? static_cast<double>(c[j]) : 0;
            for (int k = 0; k < 16; k++) {
                const double a = block.operand_a[row][k], *b = block.operand_b[k] + from;
                for (int j = 0; j < 8; j++) sum[j] += a * b[j];
            }
            for (int j = 0; j < 8; j++) c[j] = static_cast<float>(sum[j]);
        }
}

// ---- issue --------------------------------------------------------------------------------------

// Whether all threads of the group mean the same product.
static void check_alike(const warp_state &first, void **all)
{
    const auto &one = *static_cast<wgmma_arguments *>(all[0]);
    if (one.n < 8 || one.n > 256 || one.n % 8)
        fail(one.where, "multiplies for n = %d: 8 to 256, a multiple of 8", one.n);
    for (int t = 1; t < group_size; t++) {
        const auto &other = *static_cast<wgmma_arguments *>(all[t]);
        if (other.n != one.n || !other.a != !one.a || other.bf16 != one.bf16 ||
            (!one.a && other.a_descriptor != one.a_descriptor) ||
            other.b_descriptor != one.b_descriptor || other.b_transposed != one.b_transposed ||
            other.accumulate != one.accumulate)
            fail(one.where,
                 "is at wgmma, and threads %d and %d of its warpgroup differ in n, a "
                 "descriptor or a flag",
                 first.threads[0].id, first.threads[t].id);
    }
}

static void check_commits(const warp_state &first, site where)
{
    for (int t = 1; t < group_size; t++)
        if (first.threads[t].commits != first.threads[0].commits)
            fail(where,
                 "finds that threads %d and %d of its warpgroup have committed %d and %d "
                 "groups of products",
                 first.threads[0].id, first.threads[t].id, first.threads[0].commits,
                 first.threads[t].commits);
}

static void execute_wgmma(block_state &block, warp_state &first, void **all)
{
    const auto &one = *static_cast<wgmma_arguments *>(all[0]);
    check_alike(first, all);
    check_commits(first, one.where);
    warpgroup_state &group = block.groups[static_cast<size_t>(first.index / group_warps)];
    group.products.emplace_back(); // the group's, not this stack's: fail() does not return to it
    product &p = group.products.back();
    p.group = first.threads[0].commits;
    p.where = one.where;
    p.a_in_registers = one.a;
    for (int t = 0; t < group_size && one.a; t++) {
        p.a[t] = static_cast<wgmma_arguments *>(all[t])->a;
        memcpy(p.a_was[t], p.a[t], sizeof p.a_was[t]);
    }
    load_a(block, first, p, one);
    load_b(block, first, p, one);
    accumulator &acc = accumulator_of(group, first, all);
    acc.group = p.group;
    acc.where = one.where;
    multiply(block, acc, one.accumulate);
    for (uint32_t index : p.reads) {
        auto &reads = block.uses[index].group[first.index / group_warps];
        reads.products++;
        reads.thread = first.threads[0].id;
        reads.line = p.where.line;
    }
}

void wgmma(float *c, int n, const uint32_t *a, uint64_t a_descriptor, uint64_t b_descriptor,
           bool b_transposed, bool bf16, bool accumulate, site where)
{
    wgmma_arguments mine = {c,    n,          a,    a_descriptor, b_descriptor, b_transposed,
                            bf16, accumulate, where};
    collective("wgmma", where, &mine, execute_wgmma, group_warps);
}

void wgmma_fence(site)
{
    current_thread->fenced = true;
}

void wgmma_commit(site)
{
    current_thread->commits++;
}

// ---- wait ---------------------------------------------------------------------------------------

struct wait_arguments {
    int groups_left;
    site where;
};

// The operands may be gone by now, a local variable's stack having another use: no business of
// AddressSanitizer's.
__attribute__((no_sanitize("address"))) static bool changed(const uint32_t *a, const uint32_t *was)
{
    for (int r = 0; r < 4; r++)
        if (a[r] != was[r]) return true;
    return false;
}

static void finish_product(block_state &block, const warp_state *warps, const product &p,
                           site where)
{
    for (int t = 0; t < group_size && p.a_in_registers; t++)
        if (changed(p.a[t], p.a_was[t]))
            fail(where,
                 "finds that thread %d has changed an operand of a product in flight (line %d)",
                 warps->threads[t].id, p.where.line);
    for (uint32_t index : p.reads) {
        auto &reads = block.uses[index].group[warps->index / group_warps];
        reads.products--;
        for (int w = 0; w < group_warps; w++) reads.at[w] = warps[w].now();
    }
}

static void finish_accumulator(const warp_state &first, const accumulator &acc, site where)
{
    check_untouched(first, acc, where);
    for_each_element(acc.n, [&](int t, int i, int row, int column) {
        acc.c[t][i] = acc.values[static_cast<size_t>(row * acc.n + column)];
    });
}

static void execute_wait(block_state &block, warp_state &first, void **all)
{
    const auto &one = *static_cast<wait_arguments *>(all[0]);
    check_commits(first, one.where);
    for (int t = 0; t < group_size; t++) {
        if (static_cast<wait_arguments *>(all[t])->groups_left != one.groups_left)
            fail(one.where, "waits for other groups of products than thread %d of its warpgroup",
                 first.threads[t].id);
        first.threads[t].fenced = false;
    }
    warpgroup_state &group = block.groups[static_cast<size_t>(first.index / group_warps)];
    const int done = first.threads[0].commits - one.groups_left; // groups before this one
    for (size_t i = 0; i < group.products.size();)
        if (group.products[i].group < done) {
            finish_product(block, &first, group.products[i], one.where);
            group.products.erase(group.products.begin() + static_cast<ptrdiff_t>(i));
        } else
            i++;
    for (size_t i = 0; i < group.accumulators.size();)
        if (group.accumulators[i].group < done) {
            finish_accumulator(first, group.accumulators[i], one.where);
            group.accumulators.erase(group.accumulators.begin() + static_cast<ptrdiff_t>(i));
        } else
            i++;
}

void wgmma_wait(int groups_left, site where)
{
    if (groups_left < 0 || groups_left > 7)
        fail(where, "waits until %d groups of products are left: 0 to 7", groups_left);
    wait_arguments mine = {groups_left, where};
    collective("wgmma_wait", where, &mine, execute_wait, group_warps);
}

void check_products_waited_for()
{
    const block_state &block = *current_block;
    const size_t group = static_cast<size_t>(current_thread->id / group_size);
    if (group < block.groups.size() && !block.groups[group].products.empty())
        fail(block.groups[group].products[0].where, "returns without waiting for this product");
}

} // namespace emulator
