// emulator_fiber.cpp: stacks, and the switch between them.
//
// A switch saves the registers that the calling convention says a function must preserve, swaps
// the stack pointer and restores; everything else was already saved by the compiler, because to
// it the switch is an ordinary function call. ucontext does the same with two system calls more.
#include "emulator_fiber.h"

#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define EMULATOR_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATOR_ASAN
#endif
#endif
#ifdef EMULATOR_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulator
{

#ifdef EMULATOR_ASAN
static const size_t stack_size = 512 << 10; // red zones around every local
#else
static const size_t stack_size = 128 << 10;
#endif

#ifndef EMULATOR_UCONTEXT
extern "C" void emulator_switch(void **save, void *resume);

#if defined(__x86_64__)
asm(R"(
.text
.globl emulator_switch
.hidden emulator_switch
.type emulator_switch, @function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulator_switch, . - emulator_switch
)");
// Words from the stack pointer up: six registers, the address `ret` jumps to, and one word more,
// so that the entry finds the stack aligned as a call would have left it.
static const int saved_words = 8, entry_word = 6;
#else
asm(R"(
.text
.globl emulator_switch
.hidden emulator_switch
.type emulator_switch, %function
emulator_switch:
    stp x19, x20, [sp, #-160]!
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    ldp x19, x20, [sp], #160
    ret
.size emulator_switch, . - emulator_switch
)");
static const int saved_words = 20, entry_word = 11; // x30 is where `ret` goes
#endif
#endif

void fiber_prepare(fiber *f, char *stack, size_t stack_bytes, void (*entry)())
{
    f->stack = stack;
    f->stack_bytes = stack_bytes;
    f->fake_stack = nullptr;
#ifdef EMULATOR_UCONTEXT
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = stack;
    f->context.uc_stack.ss_size = stack_bytes;
    f->context.uc_link = nullptr;
    makecontext(&f->context, entry, 0);
#else
    auto *top = reinterpret_cast<void **>(stack + stack_bytes) - saved_words;
    for (int i = 0; i < saved_words; i++) top[i] = nullptr;
    top[entry_word] = reinterpret_cast<void *>(entry);
    f->stack_pointer = top;
#endif
}

// Which fiber this thread came from: AddressSanitizer tells its stack's bounds on arrival.
static void arrived(fiber *self, fiber *previous)
{
#ifdef EMULATOR_ASAN
    const void *bottom = nullptr;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(self ? self->fake_stack : nullptr, &bottom, &bytes);
    if (previous && !previous->stack) {
        previous->stack = static_cast<char *>(const_cast<void *>(bottom));
        previous->stack_bytes = bytes;
    }
#else
    (void)self, (void)previous;
#endif
}

void fiber_entered(fiber *previous)
{
    arrived(nullptr, previous);
}

void fiber_switch(fiber *from, fiber *to, bool for_good)
{
    (void)for_good;
#ifdef EMULATOR_ASAN
    __sanitizer_start_switch_fiber(for_good ? nullptr : &from->fake_stack, to->stack,
                                   to->stack_bytes);
#endif
#ifdef EMULATOR_UCONTEXT
    swapcontext(&from->context, &to->context);
#else
    emulator_switch(&from->stack_pointer, to->stack_pointer);
#endif
    arrived(from, nullptr);
}

static size_t page_bytes()
{
    static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

fiber_stacks::fiber_stacks(int count) : total(static_cast<size_t>(count) * stack_size)
{
    void *m = mmap(nullptr, total, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memory = m == MAP_FAILED ? nullptr : static_cast<char *>(m);
#ifdef EMULATOR_ASAN
    if (memory) ASAN_UNPOISON_MEMORY_REGION(memory, total); // earlier frames may have lain here
#endif
    for (int i = 0; memory && i < count; i++)
        if (mprotect(memory + static_cast<size_t>(i) * stack_size, page_bytes(), PROT_NONE)) {
            munmap(memory, total);
            memory = nullptr;
        }
}

fiber_stacks::~fiber_stacks()
{
    if (memory) munmap(memory, total);
}

char *fiber_stacks::stack(int i) const
{
    return memory + static_cast<size_t>(i) * stack_size + page_bytes();
}

size_t fiber_stacks::bytes() const
{
    return stack_size - page_bytes();
}

} // namespace emulator
