// A division per element against one per row.
extern "C" void solve(const float* __restrict__ x, const float* __restrict__ s, float* __restrict__ y, int m, int n) {
    for (int i = 0; i < m; ++i) {
        const float scale = s[i];
#if RC_PROBE
        const float inverse = 1.0f / scale;
        for (int j = 0; j < n; ++j) y[i * n + j] = x[i * n + j] * inverse;
#else
        for (int j = 0; j < n; ++j) y[i * n + j] = x[i * n + j] / scale;
#endif
    }
}
