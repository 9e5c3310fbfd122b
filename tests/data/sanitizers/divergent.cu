#include "main.h"

__global__ void some(const float* x, float* y) {
    __shared__ float kept[kN];
    const int i = threadIdx.x;
    kept[i] = x[i];
    if (i % 32 >= 16) __syncwarp(0xffff);  // FAULT
    y[i] = kept[i];
}

int main() {
    float *x = buffer(0, true), *y = buffer(1, false);
    some<<<1, kN>>>(x, y);
    return ended();
}
