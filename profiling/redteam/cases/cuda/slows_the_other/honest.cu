// Waits for its own work and leaves nothing behind.
#include "gemm.cuh"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    multiply(A, B, C, M, N, K, 0);
    cudaDeviceSynchronize();
}
