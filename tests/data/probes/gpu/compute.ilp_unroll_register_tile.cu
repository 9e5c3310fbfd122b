#include "probe.h"
__global__ void kernel(const float* a, const float* b, float* c, int n) {
    int row = threadIdx.y, column = threadIdx.x;
    __shared__ float x[32][128], y[32][128];
#if RC_PROBE
    constexpr int T = 8;
#else
    constexpr int T = 1;
#endif
    float sum[T][T] = {};
    for (int k = 0; k < n; k += 32) {
        for (int i = 0; i < T; ++i) {
            x[row][column * T + i] = a[row * n + column * T + i + k];
            y[row][column * T + i] = b[row * n + column * T + i + k];
        }
        __syncthreads();
        for (int i = 0; i < 32; ++i)
            for (int p = 0; p < T; ++p)
                for (int q = 0; q < T; ++q) sum[p][q] += x[i][row * T + p] * y[i][column * T + q];
        __syncthreads();
    }
    for (int p = 0; p < T; ++p)
        for (int q = 0; q < T; ++q) c[(row * T + p) * n + column * T + q] = sum[p][q];
}
