#include "main.h"

__global__ void added(const float* x, float* y) {
    const int i = threadIdx.x;
    y[i] += x[i];  // FAULT
}

int main() {
    float *x = buffer(0, true), *y = buffer(1, false);
    added<<<1, kN>>>(x, y);
    return ended();
}
