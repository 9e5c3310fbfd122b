#include "probe.h"
__global__ void kernel(const float* x, float* y, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float value = x[i];
#if RC_PROBE
        value = fmaxf(value, 0.0f) + 0.5f * fminf(value, 0.0f);
        y[i] = value;
#else
        if (value > 0) {
            y[i] = value;
        } else {
            y[i] = 0.5f * value;
            __threadfence_block();
        }
#endif
    }
}
