// The same on one stream.
#include "short.cuh"

extern "C" void solve(const float* x, float* y, int n) {
    static cudaStream_t stream = nullptr;
    if (!stream) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    scaled(x, y, n, stream);
}
