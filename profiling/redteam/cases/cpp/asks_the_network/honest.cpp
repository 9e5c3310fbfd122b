// Looks at the name of its host.
#include <unistd.h>
#include "gemm.h"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    char name[256];
    if (gethostname(name, sizeof name) != 0) return;
    multiply(A, B, C, M, N, K);
}
