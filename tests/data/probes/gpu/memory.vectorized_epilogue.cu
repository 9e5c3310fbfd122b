#include "probe.h"
__global__ void kernel(const float* x, float* y) {
    float part[4];
    for (int i = 0; i < 4; ++i) part[i] = 2 * x[i * 128 + threadIdx.x];
#if RC_PROBE
    __shared__ float4 rows[128];
    for (int i = 0; i < 4; ++i) reinterpret_cast<float*>(rows)[i * 128 + threadIdx.x] = part[i];
    __syncthreads();
    reinterpret_cast<float4*>(y)[threadIdx.x] = rows[threadIdx.x];
#else
    for (int i = 0; i < 4; ++i) y[i * 128 + threadIdx.x] = part[i];
#endif
}
