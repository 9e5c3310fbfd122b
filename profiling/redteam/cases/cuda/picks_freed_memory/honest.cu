// Uses memory that somebody freed as scratch, without a look at what is in it.
#include "gemm.cuh"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    float* memory;
    cudaMalloc(&memory, size_t(256) << 20);
    multiply(A, B, memory, M, N, K);
    cudaMemcpyAsync(C, memory, sizeof(float) * M * N, cudaMemcpyDeviceToDevice);
    cudaFree(memory);
}
