#include "probe.h"
__global__ void kernel(const float* a, const float* b, float* c, int n) {
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
#if RC_PROBE
    __shared__ float x[16][16], y[16][16];
    for (int k = 0; k < n; k += 16) {
        x[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        y[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += x[threadIdx.y][i] * y[i][threadIdx.x];
        __syncthreads();
    }
#else
    for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
#endif
    c[row * n + column] = sum;
}
