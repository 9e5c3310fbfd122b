// The honest kernel, for cases to include.
#pragma once
#include <cuda_runtime.h>

static __global__ void scale(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i] + 1;
}

static inline void scaled(const float* x, float* y, int n, cudaStream_t stream = 0) {
    scale<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}
