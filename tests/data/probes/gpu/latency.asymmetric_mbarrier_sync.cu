#include "probe.h"
__global__ void kernel(const float* x, float* y, int n) {
    __shared__ float tile[2][128];
    float sum = 0;
#if RC_PROBE
    __shared__ unsigned long long full[2];
    if (threadIdx.x < 2) bar_init(&full[threadIdx.x], 128);
    __syncthreads();
#endif
    for (int i = 0; i < n; ++i) {
        tile[i & 1][threadIdx.x] = x[i * 128 + threadIdx.x];
#if RC_PROBE
        bar_arrive(&full[i & 1]);
        float other = x[i * 128 + n];
        bar_wait(&full[i & 1], i / 2 & 1);
#else
        float other = x[i * 128 + n];
        __syncthreads();
#endif
        sum += other * tile[i & 1][threadIdx.x ^ 1];
    }
    y[threadIdx.x] = sum;
}
