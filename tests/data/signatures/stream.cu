#include <cuda_runtime.h>
__global__ void copy_kernel(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i];
}

extern "C" void solve(const float* a, float* b, int n, cudaStream_t stream) {
    copy_kernel<<<(n + 127) / 128, 128, 0, stream>>>(a, b, n);
}
