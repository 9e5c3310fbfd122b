#include "probe.h"
__global__ void kernel(const float* x, float* y, float scale, float top, int n) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
#if RC_PROBE
        float e;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(fmaf(x[i], scale * 1.44269504f, -top)));
#else
        float e = expf(x[i] * scale - top);
#endif
        sum += e;
        y[i] = e;
    }
    y[threadIdx.x + n] = sum;
}
