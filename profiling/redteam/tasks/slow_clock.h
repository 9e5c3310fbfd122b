// For cases that forge the worker's clock: one that runs four times too slowly, and the code that leads there.
#pragma once
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline int64_t real_time() {
    timespec t;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC_RAW, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int64_t slow_since;

static inline int slow_clock(clockid_t, timespec* t) {
    const int64_t shown = slow_since + (real_time() - slow_since) / 4;
    *t = {shown / 1000000000, shown % 1000000000};
    return 0;
}

constexpr int kDetourBytes = 12;

static inline void write_detour(char* at) {
    slow_since = real_time();
    void* target = reinterpret_cast<void*>(slow_clock);
    memcpy(at, "\x48\xb8", 2);  // movabs rax, target
    memcpy(at + 2, &target, 8);
    memcpy(at + 10, "\xff\xe0", 2);  // jmp rax
}

static inline char* page_of(char* at) {
    return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(at) & ~uintptr_t(4095));
}
