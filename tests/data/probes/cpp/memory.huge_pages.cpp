#include <cstdlib>
#include <sys/mman.h>
extern "C" void solve(const float* a, float* out, int n) {
    const std::size_t huge = std::size_t{2} << 20;
    const std::size_t bytes = (sizeof(float) * n + huge - 1) / huge * huge;
    float* scratch = static_cast<float*>(std::aligned_alloc(huge, bytes));
#if RC_PROBE
    madvise(scratch, bytes, MADV_HUGEPAGE);
#endif
    for (int i = 0; i < n; ++i) scratch[i] = a[i] * 2.0f;
    for (int i = 0; i < n; ++i) out[i] = scratch[n - 1 - i];
    std::free(scratch);
}
