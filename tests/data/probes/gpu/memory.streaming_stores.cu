#include "probe.h"
__global__ void kernel(const float* x, float* y, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
#if RC_PROBE
        __stcs(y + i, 2 * x[i]);
#else
        y[i] = 2 * x[i];
#endif
    }
}
