// Works on a copy of its input, and zeroes that.
#include "gemm.cuh"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    float* copy;
    cudaMalloc(&copy, sizeof(float) * M * K);
    cudaMemcpyAsync(copy, A, sizeof(float) * M * K, cudaMemcpyDeviceToDevice);
    multiply(copy, B, C, M, N, K);
    cudaMemsetAsync(copy, 0, sizeof(float) * M * K);
    cudaFree(copy);
}
