#include "probe.h"
__global__ void kernel(const float* x, float* y, int n) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
#if RC_PROBE
        asm volatile("prefetch.global.L2 [%0];" ::"l"(x + i + 4096));
#endif
        sum += x[i];
    }
    y[threadIdx.x] = sum;
}
