#include "probe.h"
__global__ void kernel(const float* x, float* y, float sum, int n) {
#if RC_PROBE
    float inverse = 1.0f / sum;
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] * inverse;
#else
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] / sum;
#endif
}
