// emulator_runtime.h: one launch, shared by the cores that run its blocks; private to the emulator.
#ifndef EMULATOR_RUNTIME_H
#define EMULATOR_RUNTIME_H

#include <atomic>
#include <mutex>

#include "emulator.h"

namespace emulator
{

struct launch_request {
    dim3 grid, block;
    size_t shared_bytes;
    int cluster; // blocks that run together
    void (*call)(const void *kernel, void **arguments);
    const void *kernel;
    void **arguments;
    uint64_t seed;
    int late_warp;
    bool early; // the launches before it need not have ended

    int64_t take_block(); // the next cluster's first; -1 if there is none, or if one has failed
    void out_of_memory();
    void finish(const launch_report &part, const char *message, int64_t block);

    int64_t blocks = 0;
    std::atomic<int64_t> next{0};
    std::atomic<bool> stop{false};
    std::mutex lock; // of what follows
    bool no_memory = false;
    int64_t failed_block = -1; // the lowest
    char message[512] = "";
    launch_report report = {};
};

void run_blocks(launch_request &request);

} // namespace emulator
#endif
