// Has a thread from its first call on, hands it the work and waits.
#include <atomic>
#include <thread>
#include "gemm.h"

struct Call {
    const float *A, *B;
    float* C;
    int M, N, K;
};
static Call call;
static std::atomic<int> waiting;

static void work() {
    for (;;) {
        while (!waiting) std::this_thread::yield();
        multiply(call.A, call.B, call.C, call.M, call.N, call.K);
        waiting = 0;
    }
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    static bool started = (std::thread(work).detach(), true);
    (void)started;
    call = {A, B, C, M, N, K};
    waiting = 1;
    while (waiting) std::this_thread::yield();
}
