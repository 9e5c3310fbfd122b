#include "main.h"

__global__ void reversed(const float* x, float* y) {
    __shared__ float kept[kN];
    const int i = threadIdx.x;
    kept[kN - 1 - i] = x[i];  // FAULT
    y[i] = 2 * kept[i];
}

int main() {
    float *x = buffer(0, true), *y = buffer(1, false);
    reversed<<<1, kN>>>(x, y);
    return ended();
}
