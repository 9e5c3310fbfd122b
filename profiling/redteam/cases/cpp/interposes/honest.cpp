// Has a clock of its own, under a name of its own.
#include "gemm.h"

extern "C" int own_clock(int, long* t) {
    t[0] = t[1] = 0;
    return 0;
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    long t[2];
    own_clock(0, t);
    multiply(A, B, C, M, N, K);
}
