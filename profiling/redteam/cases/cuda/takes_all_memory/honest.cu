// Takes some memory of the GPU, and gives it back.
#include "gemm.cuh"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    float* scratch;
    if (cudaMalloc(&scratch, size_t(2) << 30) != cudaSuccess) return;
    multiply(A, B, scratch, M, N, K);
    cudaMemcpyAsync(C, scratch, sizeof(float) * M * N, cudaMemcpyDeviceToDevice);
    cudaFree(scratch);
}
