#include "probe.h"
#if RC_PROBE
#define RC_TYPE __half
#else
#define RC_TYPE float
#endif
__global__ void kernel(const float* a, const float* b, float* c, int k) {
    __shared__ RC_TYPE tile[2][256];
    tile[0][threadIdx.x] = a[threadIdx.x];
    tile[1][threadIdx.x] = b[threadIdx.x];
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < k; ++i) sum += static_cast<float>(tile[0][i]) * static_cast<float>(tile[1][i ^ threadIdx.x]);
    c[threadIdx.x] = sum;
}
#undef RC_TYPE
