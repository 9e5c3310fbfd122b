#include "probe.h"
__global__ void kernel(const int* x, int* y) {
    int value = x[threadIdx.x];
#if RC_PROBE
    value = __reduce_add_sync(~0u, value);
#else
    for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(~0u, value, d);
#endif
    y[threadIdx.x] = value;
}
