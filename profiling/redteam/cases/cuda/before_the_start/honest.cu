// Writes its first element once more.
#include "gemm.cuh"

__global__ void mark(float* C, int at) { C[at] *= 1.0f; }

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    multiply(A, B, C, M, N, K);
    mark<<<1, 1>>>(C, 0);
}
