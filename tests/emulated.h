// emulated.h: launches in the emulator, for its tests.
#ifndef EMULATED_H
#define EMULATED_H

#include <cstdio>
#include <string>

#include "emulator.h"

namespace
{

// Runs a kernel; "" or the sentence of its failure.
template <class... P, class... A>
std::string launch(void (*kernel)(P...), int blocks, int threads, size_t shared_bytes,
                   A... arguments)
{
    void *list[] = {&arguments..., nullptr};
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shared_bytes));
    const cudaError_t error =
        cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(blocks)),
                         dim3(static_cast<unsigned>(threads)), list, shared_bytes);
    return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

// Whether a launch went well; what went wrong is printed.
bool fine(const std::string &message)
{
    if (!message.empty()) fprintf(stderr, "%s\n", message.c_str());
    return message.empty();
}

bool says(const std::string &message, const char *word)
{
    return message.find(word) != std::string::npos;
}

} // namespace
#endif
