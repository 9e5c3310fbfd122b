// Sets a variable of the environment, for itself.
#include <stdlib.h>
#include "gemm.h"

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    setenv("ANSWER", "42", 1);
    multiply(A, B, C, M, N, K);
}
