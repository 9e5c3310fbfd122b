// Sends a signal to itself that it ignores.
#include <signal.h>
#include "gemm.h"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    signal(SIGUSR1, SIG_IGN);
    raise(SIGUSR1);
    multiply(A, B, C, M, N, K);
}
