// Uses a stream of its own that orders itself with the default one.
#include "scale.cuh"

extern "C" void solve(const float* x, float* y, int n) {
    static cudaStream_t stream = nullptr;
    if (!stream) cudaStreamCreate(&stream);
    scaled(x, y, n, stream);
}
