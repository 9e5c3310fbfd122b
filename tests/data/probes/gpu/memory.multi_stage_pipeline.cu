#include "probe.h"
__global__ void kernel(const float4* x, float* y, int n) {
    __shared__ float4 tile[4][128];
    float sum = 0;
#if RC_PROBE
    for (int s = 0; s < 3; ++s) {
        copy_async(&tile[s][threadIdx.x], &x[s * 128 + threadIdx.x]);
        commit();
    }
    for (int i = 0; i < n; ++i) {
        wait_group<2>();
        __syncthreads();
        sum += tile[i & 3][threadIdx.x ^ 1].x;
        copy_async(&tile[(i + 3) & 3][threadIdx.x], &x[(i + 3) * 128 + threadIdx.x]);
        commit();
    }
#else
    for (int i = 0; i < n; ++i) {
        copy_async(&tile[0][threadIdx.x], &x[i * 128 + threadIdx.x]);
        commit();
        wait_group<0>();
        __syncthreads();
        sum += tile[0][threadIdx.x ^ 1].x;
        __syncthreads();
    }
#endif
    y[threadIdx.x] = sum;
}
