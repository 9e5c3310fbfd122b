#include "probe.h"
__global__ void kernel(const int* x, float* total, int n) {
#if RC_PROBE
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
    atomicAdd(total, sum);
#else
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(total, x[i]);
#endif
}
