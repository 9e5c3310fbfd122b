#include "probe.h"
__global__ void kernel(const int* x, int* y, int n) {
    __shared__ int part[64];
    int found = 0;
    for (int i = threadIdx.x; i < n; i += 32) {
#if RC_PROBE
        found += __popc(__ballot_sync(~0u, x[i] > 0));
#else
        part[threadIdx.x] = x[i] > 0;
        __syncthreads();
        for (int j = 0; j < 32; ++j) found += part[j];
        __syncthreads();
#endif
    }
    part[32 + threadIdx.x] = found;
    __syncthreads();
    y[threadIdx.x] = part[32 + (threadIdx.x ^ 1)];
}
