#include "card.h"

#include <dlfcn.h>
#include <stddef.h>

// From the driver API's header, which need not be installed: CUdevice_attribute.
enum { MULTIPROCESSORS = 16, MEMORY_KHZ = 36, BUS_BITS = 37, SHARED_BYTES_A_MULTIPROCESSOR = 81 };

bool card_read(card *c)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return false;
    // ISO C has no cast from void * to a function pointer; POSIX's dlsym needs one.
    int (*init)(unsigned) = NULL, (*get)(int *, int) = NULL;
    int (*name)(char *, int, int) = NULL, (*attribute)(int *, int, int) = NULL;
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&get = dlsym(driver, "cuDeviceGet");
    *(void **)&name = dlsym(driver, "cuDeviceGetName");
    *(void **)&attribute = dlsym(driver, "cuDeviceGetAttribute");

    int device, multiprocessors, shared, khz = 0, bits = 0;
    const bool found = init && get && name && attribute && init(0) == 0 && get(&device, 0) == 0 &&
                       name(c->name, sizeof c->name, device) == 0 &&
                       attribute(&multiprocessors, MULTIPROCESSORS, device) == 0 &&
                       attribute(&shared, SHARED_BYTES_A_MULTIPROCESSOR, device) == 0;
    if (found) {
        if (attribute(&khz, MEMORY_KHZ, device) != 0 || attribute(&bits, BUS_BITS, device) != 0)
            khz = 0;
        c->multiprocessors = multiprocessors;
        c->shared_bytes = shared;
        c->bandwidth = 2.0 * khz * 1e3 * bits / 8; // two transfers a clock
    }
    dlclose(driver);
    return found;
}
