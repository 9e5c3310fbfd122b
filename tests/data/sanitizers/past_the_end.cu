#include "main.h"

__global__ void next(const float* x, float* y) {
    const int i = threadIdx.x;
    y[i] = x[i + 1];  // FAULT
}

int main() {
    float *x = buffer(0, true), *y = buffer(1, false);
    next<<<1, kN>>>(x, y);
    return ended();
}
