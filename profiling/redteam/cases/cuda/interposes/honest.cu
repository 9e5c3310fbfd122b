// Has functions of its own, under names of its own.
#include "gemm.cuh"

extern "C" int own_clock(float* ms) {
    *ms = 0.01f;
    return 0;
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    float unused;
    own_clock(&unused);
    multiply(A, B, C, M, N, K);
}
