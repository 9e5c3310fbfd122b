// Copies an element to the host.
#include "gemm.cuh"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    float first = 0;
    cudaMemcpy(&first, A, sizeof first, cudaMemcpyDeviceToHost);
    multiply(A, B, C, M, N, K);
}
