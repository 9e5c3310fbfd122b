#include "probe.h"
__global__ void kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#if RC_PROBE
    if (4 * i + 3 < n) {
        float4 v = reinterpret_cast<const float4*>(x)[i];
        reinterpret_cast<float4*>(y)[i] = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);
    } else {
        for (int j = 4 * i; j < n; ++j) y[j] = 2 * x[j];
    }
#else
    if (i < n) y[i] = 2 * x[i];
#endif
}
