// A helper that is called per element against one that is inlined.
#if RC_PROBE
static inline __attribute__((always_inline))
#else
static __attribute__((noinline))
#endif
float helper(float x, float y) { return x * y + x; }
extern "C" void solve(const float* a, const float* b, float* out, int n) {
    for (int i = 0; i < n; ++i) out[i] = helper(a[i], b[i]);
}
