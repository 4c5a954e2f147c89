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

struct warp_state;

// A copy to shared memory that its thread has issued and not waited for.
struct pending_copy {
    uint32_t address, bytes;
    site where;
    unsigned char data[16];
};

struct thread_state {
    fiber context;
    dim3 index;
    int id, lane; // in the block, in the warp
    warp_state *warp;
    const char *waits_for; // "a barrier", "mma"; NULL while running; "" once the kernel returned
    site where;            // of the operation it waits for
    void *arguments;       // of that operation, on its own stack
    int accesses;          // to shared memory since the warp last met
    std::vector<pending_copy> copies;
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
    int arrived;           // lanes waiting for the current operation
    uint32_t epoch;        // rises with every barrier that orders the warp's accesses
    access_log log[logged_accesses];
};

// For two bytes of shared memory: who touched them last, in which epoch, at which line.
struct shadow {
    uint32_t write_epoch, read_epoch; // 0: never
    uint16_t writer, reader;          // thread, or see readers_of_warp and all_readers
    uint16_t write_line, read_line;
};
enum : uint16_t { readers_of_warp = 0x8000, all_readers = 0xffff };
enum : uint32_t { in_flight = 0xffffffff }; // a write_epoch: a copy is on its way

struct block_state {
    int64_t index; // in the grid, flat
    dim3 block_index, block_extent, grid_extent;
    std::vector<thread_state> threads;
    std::vector<warp_state> warps;
    std::vector<thread_state *> runnable;
    std::vector<unsigned char> memory; // shared
    std::vector<shadow> shadows;       // [bytes / 2]
    int at_barrier, finished;
    uint32_t epoch, last_epoch; // of the last block-wide barrier; the highest given out
    uint64_t random;
    fiber scheduler;        // where the block was started, and where it ends
    thread_state *previous; // who ran before the running thread; NULL: the scheduler
    void (*call)(const void *kernel, void **arguments);
    const void *kernel;
    void **arguments;
    bool failed;
    char message[512];
    launch_report report;
};

// __thread, not thread_local: no wrapper function stands between a fiber and its core's variables.
extern __thread block_state *current_block;
extern __thread thread_state *current_thread;

// Waits until every lane of the warp has called this with the same name and site; the last to
// arrive runs execute(arguments of all lanes) for all.
void collective(const char *name, site where, void *arguments,
                void (*execute)(block_state &block, warp_state &warp, void **arguments));

// Counts the bank conflicts of the accesses logged since the warp last met, and forgets them.
void settle_accesses(block_state &block, warp_state &warp);

// Checks and records one access, without moving data.
void shared_check_read(thread_state &thread, uint32_t address, uint32_t bytes, site where);
void shared_check_write(thread_state &thread, uint32_t address, uint32_t bytes, site where);

// Fails if the running thread, which is about to end, has copies on their way.
void check_copies_waited_for();

// Turns that shared memory needs for `count` accesses of `bytes` each, made at once.
int bank_turns(const uint32_t *address, int count, uint32_t bytes);

} // namespace emulator
#endif
