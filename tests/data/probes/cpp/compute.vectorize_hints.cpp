// Possible overlap of distance one keeps the plain loop scalar.
extern "C" void solve(const float* a, float* out, int n, int shift) {
#if RC_PROBE
    const float* __restrict__ in = a;
    float* __restrict__ to = out;
    for (int i = 0; i < n; ++i) to[i] = in[i] * 3.0f + 1.0f;
#else
    volatile int step = shift;
    for (int i = 0; i < n; i += step) out[i] = a[i] * 3.0f + 1.0f;
#endif
}
