// The honest kernel, for cases to include.
#pragma once
#include <cuda_runtime.h>

static __global__ void add(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i];
}

static inline void accumulate(const float* x, float* y, int n) { add<<<(n + 255) / 256, 256>>>(x, y, n); }
