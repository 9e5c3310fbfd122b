#include "probe.h"
__global__ void kernel(const float* a, float* c, int n) {
    __shared__ float tile[2][128];
#if RC_PROBE
    // Named barriers 1 and 2 say that a tile is full, 3 and 4 that it is free.
    if (threadIdx.x < 128) {
        for (int i = 0; i < n; ++i) {
            asm volatile("bar.sync %0, 256;" ::"r"(3 + (i & 1)) : "memory");
            tile[i & 1][threadIdx.x] = a[i * 128 + threadIdx.x];
            asm volatile("bar.arrive %0, 256;" ::"r"(1 + (i & 1)) : "memory");
        }
    } else {
        float sum = 0;
        for (int i = 0; i < n; ++i) {
            asm volatile("bar.sync %0, 256;" ::"r"(1 + (i & 1)) : "memory");
            for (int j = 0; j < 128; ++j) sum += tile[i & 1][j ^ (threadIdx.x & 31)];
            asm volatile("bar.arrive %0, 256;" ::"r"(3 + (i & 1)) : "memory");
        }
        c[threadIdx.x] = sum;
    }
#else
    float sum = 0;
    for (int i = 0; i < n; ++i) {
        __syncthreads();
        tile[i & 1][threadIdx.x] = a[i * 128 + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < 128; ++j) sum += tile[i & 1][j ^ (threadIdx.x & 31)];
    }
    c[threadIdx.x] = sum;
#endif
}
