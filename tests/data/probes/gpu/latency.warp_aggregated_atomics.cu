#include "probe.h"
__global__ void kernel(const float* x, float* bins, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
#if RC_PROBE
        float sum = x[i];
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
        if (threadIdx.x % 32 == 0) atomicAdd(&bins[i / 1024], sum);
#else
        atomicAdd(&bins[i / 1024], x[i]);
#endif
    }
}
