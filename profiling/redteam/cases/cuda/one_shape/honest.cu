// Has a special path and a general one.
#include "gemm.cuh"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    if (M % 8 == 0) return multiply(A, B, C, M, N, K);
    for (int i = 0; i < M; i++) multiply(A + i * K, B, C + i * N, 1, N, K);
}
