// Leaves the device's time behind in memory of its own.
#include "gemm.cuh"

__device__ unsigned long long left;

__global__ void leave() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    left = now;
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    multiply(A, B, C, M, N, K);
    leave<<<1, 1>>>();
}
