// Clears its output first, then works.
#include "gemm.cuh"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    cudaMemsetAsync(C, 0, sizeof(float) * M * N);
    multiply(A, B, C, M, N, K);
}
