#include "tensor.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { ALIGNMENT = 64 };

static _Atomic int64_t held, peak;

const char *format_bytes(double bytes, char *buffer, size_t size)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int unit = 0;
    while (bytes >= 1024.0 && unit < 6) {
        bytes /= 1024.0;
        unit++;
    }
    snprintf(buffer, size, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return buffer;
}

attention_status tensor_count(const char *name, int64_t d0, int64_t d1, int64_t d2, int64_t d3,
                              int64_t *count)
{
    const int64_t extents[4] = {d0, d1, d2, d3};
    int64_t product = 1, bytes;
    bool overflow = false;
    for (int i = 0; i < 4; i++) {
        if (extents[i] < 1)
            return status_fail(ATTENTION_BAD_ARGUMENT,
                               "%s [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                               "] has an extent below 1",
                               name, d0, d1, d2, d3);
        overflow |= __builtin_mul_overflow(product, extents[i], &product);
    }
    overflow |= __builtin_mul_overflow(product, (int64_t)sizeof(float), &bytes);
    if (overflow)
        return status_fail(ATTENTION_NO_MEMORY,
                           "%s [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                           "] would need %.3Lg bytes, more than 64 bits can count",
                           name, d0, d1, d2, d3,
                           (long double)d0 * (long double)d1 * (long double)d2 * (long double)d3 *
                               sizeof(float));
    *count = product;
    return ATTENTION_OK;
}

// The number after `key` in a small file such as /proc/meminfo, or -1.
static int64_t read_number(const char *path, const char *key)
{
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    char line[256];
    int64_t number = -1;
    while (number < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0) {
            char *end;
            const long long value = strtoll(line + strlen(key), &end, 10);
            if (end != line + strlen(key)) number = value;
        }
    fclose(file);
    return number;
}

// The least that the machine, the control group and the address-space limit leave, in bytes.
static int64_t bytes_available(void)
{
    int64_t least = INT64_MAX;
    const int64_t machine = read_number("/proc/meminfo", "MemAvailable:");
    if (machine >= 0) least = machine * 1024;

    const int64_t group = read_number("/sys/fs/cgroup/memory.max", "");
    const int64_t used = read_number("/sys/fs/cgroup/memory.current", "");
    if (group >= 0 && used >= 0 && group - used < least) least = group > used ? group - used : 0;

    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        const int64_t pages = read_number("/proc/self/statm", ""); // total program size
        const int64_t left = (int64_t)limit.rlim_cur - (pages > 0 ? pages * 4096 : 0);
        if (left < least) least = left > 0 ? left : 0;
    }
    return least;
}

attention_status tensor_fits(const char *name, int64_t bytes)
{
    const int64_t available = bytes_available();
    if (bytes <= available) return ATTENTION_OK;
    char need[32], have[32];
    return status_fail(ATTENTION_NO_MEMORY, "%s: %" PRId64 " bytes (%s) are needed, %s available",
                       name, bytes, format_bytes((double)bytes, need, sizeof need),
                       format_bytes((double)available, have, sizeof have));
}

attention_status tensor_new(const char *name, int64_t d0, int64_t d1, int64_t d2, int64_t d3,
                            float **tensor)
{
    *tensor = NULL;
    int64_t count = 0;
    attention_status status = tensor_count(name, d0, d1, d2, d3, &count);
    if (status != ATTENTION_OK) return status;

    char label[192];
    snprintf(label, sizeof label, "%s [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]", name,
             d0, d1, d2, d3);
    const int64_t bytes = count * (int64_t)sizeof(float);
    status = tensor_fits(label, bytes);
    if (status != ATTENTION_OK) return status;

    // One aligned line in front remembers the size for tensor_free.
    const size_t total = ((size_t)bytes + 2UL * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    char *memory = aligned_alloc(ALIGNMENT, total);
    if (!memory)
        return status_fail(ATTENTION_NO_MEMORY, "%s: %" PRId64 " bytes could not be allocated",
                           label, bytes);
    memcpy(memory, &bytes, sizeof bytes);
    *tensor = (float *)(memory + ALIGNMENT);

    const int64_t now = atomic_fetch_add(&held, bytes) + bytes;
    int64_t seen = atomic_load(&peak);
    while (now > seen && !atomic_compare_exchange_weak(&peak, &seen, now)) {
    }
    return ATTENTION_OK;
}

void tensor_free(float *tensor)
{
    if (!tensor) return;
    char *memory = (char *)tensor - ALIGNMENT;
    int64_t bytes;
    memcpy(&bytes, memory, sizeof bytes);
    atomic_fetch_sub(&held, bytes);
    free(memory);
}

int64_t tensor_bytes(void)
{
    return atomic_load(&held);
}

int64_t tensor_peak_bytes(void)
{
    return atomic_load(&peak);
}

void tensor_reset_peak(void)
{
    atomic_store(&peak, atomic_load(&held));
}

tensor_difference tensor_compare(const float *x, const float *y, int64_t count)
{
    tensor_difference result = {0};
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        const bool alike = x[i] == y[i] || (isnan(x[i]) && isnan(y[i]));
        double difference = alike ? 0 : fabs((double)x[i] - (double)y[i]);
        if (isnan(difference)) difference = INFINITY;
        if (difference > result.max_abs) {
            result.max_abs = difference;
            result.worst = i;
        }
        sum += difference;
        result.non_finite += !isfinite(x[i]);
    }
    result.mean_abs = count > 0 ? sum / (double)count : 0;
    return result;
}
