// Looks at its own process.
#include <unistd.h>
#include "gemm.h"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    if (getpid() <= 0) return;
    multiply(A, B, C, M, N, K);
}
