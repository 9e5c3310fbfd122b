// Registers something to be done as the process ends.
#include <cstdlib>
#include "gemm.cuh"

static void bye() {
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    static int registered = atexit(bye);
    (void)registered;
    multiply(A, B, C, M, N, K);
}
