// A row sum that is loaded and stored per element against one kept in a register.
extern "C" void solve(const float* a, float* out, int m, int n) {
    for (int i = 0; i < m; ++i) {
#if RC_PROBE
        float sum = 0;
        for (int j = 0; j < n; ++j) sum += a[i * n + j];
        out[i] = sum;
#else
        out[i] = 0;
        for (int j = 0; j < n; ++j) out[i] += a[i * n + j];
#endif
    }
}
