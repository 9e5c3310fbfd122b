#ifdef __CUDA_ARCH__
__device__ float scale() { return 2.0f; }
#else
extern "C" void solve(const float* a, float* out, int n) { (void)a; }
#endif
