#include "probe.h"
__global__ void kernel(const float* x, float* y, int n) {
    __shared__ float tile[2][128];
    float sum = 0;
    for (int i = 0; i < n; ++i) {
#if RC_PROBE
        int stage = i & 1;
#else
        int stage = 0;
#endif
        tile[stage][threadIdx.x] = x[i * 128 + threadIdx.x];
        __syncthreads();
        sum += tile[stage][threadIdx.x ^ 1];
#if !RC_PROBE
        __syncthreads();
#endif
    }
    y[threadIdx.x] = sum;
}
