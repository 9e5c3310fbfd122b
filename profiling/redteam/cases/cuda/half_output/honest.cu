// Works in two halves.
#include "gemm.cuh"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    const int half = M / 2;
    multiply(A, B, C, half, N, K);
    multiply(A + half * K, B, C + half * N, M - half, N, K);
}
