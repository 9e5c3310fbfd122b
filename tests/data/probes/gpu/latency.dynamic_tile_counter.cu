#include "probe.h"
__global__ void kernel(const float* x, float* y, int* next, int n) {
#if RC_PROBE
    __shared__ int tile;
    for (;;) {
        if (threadIdx.x == 0) tile = atomicAdd(next, 1);
        __syncthreads();
        int mine = tile;
        __syncthreads();
        if (mine >= n) return;
        y[mine * 128 + threadIdx.x] = 2 * x[mine * 128 + threadIdx.x];
    }
#else
    for (int mine = blockIdx.x; mine < n; mine += gridDim.x) y[mine * 128 + threadIdx.x] = 2 * x[mine * 128 + threadIdx.x];
#endif
}
