#include <cuda_fp4.h>
extern "C" void solve(const float* x, __nv_fp4x2_e2m1* y, int n) { (void)n; }
