// Launches a kernel that waits for a flag, which is set.
#include "gemm.cuh"

__global__ void spin(volatile int* flag) {
    while (*flag != 1) {
    }
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    static int* flag = nullptr;
    if (!flag) cudaMalloc(&flag, sizeof(int));
    cudaMemsetAsync(flag, 0, sizeof(int));
    cudaMemsetAsync(flag, 1, 1);
    spin<<<1, 1>>>(flag);
    multiply(A, B, C, M, N, K);
}
