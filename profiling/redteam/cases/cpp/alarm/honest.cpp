// Is interrupted by a signal of its own, and works then.
#include <signal.h>
#include "gemm.h"

struct Call {
    const float *A, *B;
    float* C;
    int M, N, K;
};
static Call call;

static void work(int) {
    multiply(call.A, call.B, call.C, call.M, call.N, call.K);
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    call = {A, B, C, M, N, K};
    signal(SIGALRM, work);
    raise(SIGALRM);
}
