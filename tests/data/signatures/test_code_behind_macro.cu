#include <cuda_runtime.h>
static float* g_scratch = nullptr;
extern "C" void solve(const float* input, const float* gamma, const float* beta, float* output,
                      int N, int C, float eps) {
    if (!g_scratch) cudaMalloc(&g_scratch, C * sizeof(float));
}
#ifndef ONLINE_JUDGE
namespace {
void solve(float* x) { *x = 0; }
}
int main() { float x; solve(&x); }
#endif
