#include "probe.h"
// Two warpgroups; in the probe each waits for its turn at the products and hands the turn on before its epilogue.
__global__ void kernel(const unsigned* x, float* y, int n) {
    int group = threadIdx.x / 128;
    for (int tile = 0; tile < n; ++tile) {
#if RC_PROBE
        asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory");
#endif
        float sum[4] = {};
        for (int k = 0; k < 8; ++k) mma_f16(sum, x + (tile * 8 + k) * 6, x + (tile * 8 + k) * 6 + 4);
#if RC_PROBE
        asm volatile("bar.arrive %0, 256;" ::"r"(2 - group) : "memory");
#endif
        for (int i = 0; i < 4; ++i) y[(tile * 256 + threadIdx.x) * 4 + i] = fmaxf(sum[i], 0.0f);
    }
}
