#include <cuda_runtime.h>
// extern "C" void solve(const float* A, const float* B, float* C, int BATCH, int M, int N, int K) {
//     old<<<1, 1>>>(A, B, C);
// }
#if 0
extern "C" void solve(const double* A, double* C, long long N) {
}
#endif
/* extern "C" void solve(int dead) {
} */
__global__ void copy_kernel(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i];
}

extern "C" void solve(const float* A, float* C, int N) {
    copy_kernel<<<1, 256>>>(A, C, N);
}
