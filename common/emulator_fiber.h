// emulator_fiber.h: a stack of one's own for every CUDA thread, and the switch between two stacks.
#ifndef EMULATOR_FIBER_H
#define EMULATOR_FIBER_H

#include <cstddef>

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(EMULATOR_UCONTEXT)
#define EMULATOR_UCONTEXT // no switch written for this processor: slower, but portable
#endif
#ifdef EMULATOR_UCONTEXT
#include <ucontext.h>
#endif

namespace emulator
{

struct fiber {
#ifdef EMULATOR_UCONTEXT
    ucontext_t context;
#else
    void *stack_pointer; // of a fiber that is not running; its registers lie on its stack
#endif
    char *stack; // lowest address; NULL: the thread's own stack
    size_t stack_bytes;
    void *fake_stack; // AddressSanitizer's
};

// Makes `f` start in `entry`, which must never return, at the first switch to it. A fiber may be
// prepared again at any time while it is not running; what was on its stack is forgotten.
void fiber_prepare(fiber *f, char *stack, size_t stack_bytes, void (*entry)());

// Leaves `from`, which must be the running one, and goes on in `to`. With for_good, `from` will
// never be resumed.
void fiber_switch(fiber *from, fiber *to, bool for_good = false);

// To be called first in a fiber's entry: `previous` is the fiber that it was entered from.
void fiber_entered(fiber *previous);

// `count` stacks, each above a page that faults; NULL if there is no room.
class fiber_stacks
{
  public:
    explicit fiber_stacks(int count);
    ~fiber_stacks();
    fiber_stacks(const fiber_stacks &) = delete;
    fiber_stacks &operator=(const fiber_stacks &) = delete;
    bool ok() const
    {
        return memory != nullptr;
    }
    char *stack(int i) const;
    size_t bytes() const;

  private:
    char *memory;
    size_t total;
};

} // namespace emulator
#endif
