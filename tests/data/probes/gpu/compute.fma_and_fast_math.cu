#include "probe.h"
__global__ void kernel(const float* x, float* y, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
#if RC_PROBE
        y[i] = __fdividef(x[i], x[i + n]) + rsqrtf(x[i]);
#else
        y[i] = x[i] / x[i + n] + 1.0f / sqrtf(x[i]);
#endif
    }
}
