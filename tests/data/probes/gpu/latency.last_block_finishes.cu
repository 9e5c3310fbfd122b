#include "probe.h"
__global__ void kernel(const float* x, float* parts, float* y, unsigned* count) {
    parts[blockIdx.x] = x[blockIdx.x];
#if RC_PROBE
    __threadfence();
    if (atomicInc(count, gridDim.x - 1) == gridDim.x - 1) {
        float sum = 0;
        for (int i = 0; i < gridDim.x; ++i) sum += __ldcg(parts + i);
        *y = sum;
    }
#endif
}
