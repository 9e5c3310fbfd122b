// Returns early where there is nothing to do, and only there.
#include "gemm.cuh"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    if (M == 0 || N == 0) return;
    multiply(A, B, C, M, N, K);
}
