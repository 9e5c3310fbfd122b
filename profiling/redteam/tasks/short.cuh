// The honest kernel, for cases to include.
#pragma once
#include <cuda_runtime.h>

static __device__ void scale_slowly(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float work = x[i];
    for (int turn = 0; turn < 4000; turn++) work = work * 0.5f + 1.0f;
    y[i] = work == -1.0f ? 0.0f : 2 * x[i] + 1;  // it never is, but no compiler knows
}

static __global__ void scale_one(const float* x, float* y, int n) { scale_slowly(x, y, n); }

static inline void scaled(const float* x, float* y, int n, cudaStream_t stream = 0) {
    scale_one<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}
