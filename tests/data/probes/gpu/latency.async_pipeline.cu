#include "probe.h"
__global__ void kernel(const float4* x, float* y, int n) {
    __shared__ float4 tile[2][128];
    float sum = 0;
#if RC_PROBE
    copy_async(&tile[0][threadIdx.x], &x[threadIdx.x]);
    commit();
    for (int i = 0; i < n; ++i) {
        copy_async(&tile[(i + 1) & 1][threadIdx.x], &x[(i + 1) * 128 + threadIdx.x]);
        commit();
        wait_group<1>();
        __syncthreads();
        sum += tile[i & 1][threadIdx.x ^ 1].x;
        __syncthreads();
    }
#else
    for (int i = 0; i < n; ++i) {
        tile[0][threadIdx.x] = x[i * 128 + threadIdx.x];
        __syncthreads();
        sum += tile[0][threadIdx.x ^ 1].x;
        __syncthreads();
    }
#endif
    y[threadIdx.x] = sum;
}
