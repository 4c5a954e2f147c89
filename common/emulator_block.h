// emulator_block.h: the state of a block while it runs; private to the emulator's own files.
#ifndef EMULATOR_BLOCK_H
#define EMULATOR_BLOCK_H

#include <cstdint>
#include <vector>

#include "emulator.h"
#include "emulator_fiber.h"

namespace emulator
{

enum { warp_size = 32, logged_accesses = 64 };
enum { max_warps = 32, max_mbarriers = 64, group_warps = 4, group_size = 128, max_groups = 8 };
enum { max_cluster = 2 }; // blocks that share a block_state

struct warp_state;
struct block_state;

// What a warp knows to have happened: all that warp w did before its tick ticks[w], and the first
// phases[m] phases of mbarrier m. Ticks are drawn from one counter of the block.
struct vector_clock {
    uint32_t ticks[max_warps], phases[max_mbarriers];
};
void join(vector_clock &to, const vector_clock &from);

// A copy to shared memory that its thread has issued and not waited for.
struct pending_copy {
    uint32_t address, bytes;
    site where;
    unsigned char data[16];
};

struct thread_state {
    fiber context;
    dim3 index;
    int id, lane; // in the cluster, in the warp
    int rank;     // of its block in the cluster
    warp_state *warp;
    const char *waits_for; // "a barrier", "mma"; NULL while running; "" once the kernel returned
    site where;            // of the operation it waits for
    void *arguments;       // of that operation, on its own stack
    int accesses;          // to shared memory since the warp last met
    std::vector<pending_copy> copies;
    int commits;              // groups of wgmma closed so far
    bool fenced;              // wgmma_fence since the last wgmma_wait
    bool waited_for_launches; // those before this one
};

// Ordinary loads and stores become one access of the warp only when its lanes are lined up
// afterwards: the n-th of each lane since they last met.
struct access_log {
    uint32_t address[warp_size], bytes[warp_size];
    int line[warp_size];
    uint32_t lanes; // bit l: lane l made it
};

struct warp_state {
    thread_state *threads; // [warp_size]
    int index;             // in the cluster
    int arrived;           // lanes waiting for the current operation
    int group_arrived;     // threads waiting for one of the warpgroup that begins with this warp
    uint32_t epoch;        // the tick of the last barrier that put its lanes in order
    vector_clock clock;    // of which ticks[index] is now
    access_log log[logged_accesses];
    uint32_t now() const
    {
        return clock.ticks[index];
    }
};

// For two bytes of shared memory: who touched them last, at which tick, at which line.
struct shadow {
    uint32_t write_epoch, read_epoch; // 0: never
    uint16_t writer, reader;          // thread, or see readers_of_warp and all_readers
    uint16_t write_line, read_line;
};
enum : uint16_t { readers_of_warp = 0x8000, all_readers = 0xffff };
enum : uint32_t {
    in_flight = 0xffffffff, // a write_epoch: a copy is on its way
    from_box = 0xfffffffe   // copy_box brought it: its async_use tells more
};

// An mbarrier. Phase p, counted from 0, has parity p % 2.
struct mbarrier {
    uint32_t address;
    int index, arrivals;             // those that a phase takes
    uint32_t phase;                  // the one that is not complete
    int pending;                     // arrivals it lacks
    int64_t bytes;                   // it lacks; below 0 if they came before they were expected
    int thread;                      // that initialised it
    site where;                      // it did
    bool fenced;                     // and has fenced that since,
    uint32_t fenced_at;              // at this tick
    vector_clock arrived, completed; // what those knew that arrived in this phase; until it
    std::vector<thread_state *> waiting;
    char text[100]; // what they wait for
};

struct named_barrier {
    char text[24];
    int threads, arrived;      // threads 0: nobody has come yet
    uint32_t lanes[max_warps]; // bit l: lane l has come
    vector_clock clock;        // what those that came knew
    std::vector<thread_state *> waiting;
};

// A copy_box that was issued and not yet delivered.
struct box_copy {
    uint32_t to;
    tensor_map map;
    int col, row, plane, mbarrier, thread;
    site where;
};

// For 1024 bytes of shared memory: the last copy_box to them, and who has read them since.
struct async_use {
    enum : uint8_t { nothing, on_its_way, arrived } copy;
    int mbarrier, thread, line; // of the copy
    uint32_t phase;             // of that mbarrier, in which it arrived
    int writer, write_line;     // of an ordinary store since; -1: none
    struct {
        int products;             // in flight that read it
        uint32_t at[group_warps]; // what the warps' clocks were when the last had been waited for
        int thread, line;
    } group[max_groups];
    struct {
        uint32_t at; // the last ordinary read
        int thread, line;
    } warp[max_warps];
};
enum { async_use_bytes = 1024 };

// A wgmma that was issued and not yet waited for.
struct product {
    int group; // how many groups were closed before
    site where;
    bool a_in_registers;
    const uint32_t *a[group_size];
    uint32_t a_was[group_size][4];
    std::vector<uint32_t> reads; // indices of async_use
};

// Registers that products in flight add to, and what they will hold.
struct accumulator {
    int n, group; // of the last product
    site where;
    float *c[group_size];
    std::vector<float> values; // [64, n]
};

struct warpgroup_state {
    std::vector<product> products;
    std::vector<accumulator> accumulators;
    int registers; // a thread, by set_registers; 0: as at launch
    bool increased, decreased;
};

// A cluster of blocks, mostly of one. Block r has the threads from r * block_threads on and shared
// memory from r << cluster_shift on.
struct block_state {
    int64_t index; // in the grid, flat; of the first block
    int cluster, block_threads;
    dim3 block_index[max_cluster], block_extent, grid_extent;
    std::vector<thread_state> threads;
    std::vector<warp_state> warps;
    std::vector<thread_state *> runnable;
    std::vector<unsigned char> memory; // shared
    uint32_t shared_bytes;             // of one block
    std::vector<shadow> shadows;       // [bytes / 2]
    std::vector<async_use> uses;       // [bytes / 1024]
    std::vector<mbarrier> mbarriers;   // never moved: threads that wait point to their texts
    named_barrier named[max_cluster][16];
    std::vector<box_copy> boxes; // in flight
    std::vector<warpgroup_state> groups;
    double operand_a[64][16], operand_b[16][256];       // of the wgmma that is being executed
    int at_barrier[max_cluster], finished[max_cluster]; // threads
    int at_cluster_barrier;
    uint32_t epoch[max_cluster], last_epoch; // tick of the last block-wide barrier; the highest
    uint64_t random;
    fiber scheduler;        // where the block was started, and where it ends
    thread_state *previous; // who ran before the running thread; NULL: the scheduler
    void (*call)(const void *kernel, void **arguments);
    const void *kernel;
    void **arguments;
    bool early;    // launched so: see launch_request
    int late_warp; // see settings
    bool failed;
    char message[512];
    launch_report report;
};

// __thread, not thread_local: no wrapper function stands between a fiber and its core's variables.
extern __thread block_state *current_block;
extern __thread thread_state *current_thread;

// Waits until every lane of the warp, or of a warpgroup's `warps` warps, has called this with the
// same name and site; the last to arrive runs execute(first warp, arguments of all lanes) for all.
void collective(const char *name, site where, void *arguments,
                void (*execute)(block_state &block, warp_state &warp, void **arguments),
                int warps = 1);

uint64_t next_random(uint64_t &state);

// Gives the core to another thread, or to the scheduler if none can run.
void give_way(bool for_good);

bool same(site a, site b);

// Waits for wake(); `text` tells a block that is stuck what for, and stays where it is.
void park(const char *text, site where);
void wake(block_state &block, thread_state &thread);

// Goes on some time later: behind an operation that does not wait but that others see.
void let_others_run();

// A new tick of the warp: what it did until now has a lower one.
void advance(block_state &block, warp_state &warp);

// Whether what thread `other` did at tick `then` is not yet ordered before what `thread` does now.
bool unordered(const thread_state &thread, int other, uint32_t then);

// Counts the bank conflicts of the accesses logged since the warp last met, and forgets them.
void settle_accesses(block_state &block, warp_state &warp);

// Lets those at the cluster's barrier go on if all that have not returned are there.
void pass_cluster_barrier();

// Whether bytes of shared memory are not all of one block's.
bool outside(const block_state &block, uint32_t address, uint64_t bytes);

// Fails if these bytes, or this mbarrier, belong to another block than the running thread's.
void check_own(uint32_t address, const char *what, site where);

// Checks and records one access, without moving data.
void shared_check_read(thread_state &thread, uint32_t address, uint32_t bytes, site where);
void shared_check_write(thread_state &thread, uint32_t address, uint32_t bytes, site where);

// Fail if the running thread, which is about to end, has copies on their way, or products in
// flight; or if it is the block's last and nobody has waited for some copy_box.
void check_copies_waited_for();
void check_products_waited_for();
void check_boxes_waited_for();

// emulator_operand.cpp: what a product multiplies, to operand_a and operand_b, with checks and
// notes of what it reads. `first` is the warpgroup's first warp.
struct wgmma_arguments {
    float *c;
    int n;
    const uint32_t *a;
    uint64_t a_descriptor, b_descriptor;
    bool b_transposed, bf16, accumulate;
    site where;
};
void load_a(block_state &block, const warp_state &first, product &p, const wgmma_arguments &args);
void load_b(block_state &block, const warp_state &first, product &p, const wgmma_arguments &args);

// emulator_mbarrier.cpp
mbarrier &find_mbarrier(uint32_t address, bool for_copy, site where);
void mbarrier_receive(block_state &block, mbarrier &m, int64_t bytes);
void describe_mbarriers(block_state &block); // brings their texts up to date

// emulator_box.cpp: copies arrive; what else touches their target is checked and noted.
void deliver_box(block_state &block, size_t i);
void box_check_read(thread_state &thread, uint32_t address, site where);
void box_check_write(thread_state &thread, uint32_t address, site where);
void check_box_released(const thread_state &thread, const async_use &use, site where);
bool has_waited(const warp_state &warp, const async_use &use);

// Turns that shared memory needs for `count` accesses of `bytes` each, made at once.
int bank_turns(const uint32_t *address, int count, uint32_t bytes);

} // namespace emulator
#endif
