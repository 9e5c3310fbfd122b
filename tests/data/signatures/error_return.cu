#include <cuda_runtime.h>
extern "C" cudaError_t solve(const float* a, float* out, int n) { return cudaGetLastError(); }
