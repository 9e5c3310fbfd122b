// Scratch from the heap per row against an array on the stack.
#include <cstdlib>
extern "C" void solve(const float* a, float* out, int m) {
    constexpr int n = 64;
    for (int i = 0; i < m; ++i) {
#if RC_PROBE
        float scratch[n];
#else
        float* scratch = static_cast<float*>(std::malloc(sizeof(float) * n));
#endif
        for (int j = 0; j < n; ++j) scratch[j] = a[i * n + j] * 2.0f;
        asm volatile("" : : "r"(scratch) : "memory");  // the scratch is really used
        for (int j = 0; j < n; ++j) out[i * n + j] = scratch[n - 1 - j];
#if !RC_PROBE
        std::free(scratch);
#endif
    }
}
