#include "probe.h"
__global__ void kernel(float* y, int n) {
#if RC_PROBE
    __shared__ alignas(16) int next[4];
    __shared__ unsigned long long bar;
    if (threadIdx.x == 0) bar_init(&bar, 1);
    __syncthreads();
    for (int turn = 0;; ++turn) {
        if (threadIdx.x == 0) {
            bar_expect(&bar, 16);
            asm volatile(
                "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];"
                ::"r"(shared_address(next)), "r"(shared_address(&bar)) : "memory");
        }
        y[turn * n + threadIdx.x] += 1;
        bar_wait(&bar, turn & 1);
        if (next[0] == 0) return;
    }
#else
    for (int tile = blockIdx.x; tile < n; tile += gridDim.x) y[tile * n + threadIdx.x] += 1;
#endif
}
