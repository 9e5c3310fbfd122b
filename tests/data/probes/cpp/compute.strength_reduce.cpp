// A remainder per element against a counter that wraps.
extern "C" void solve(const float* a, const float* table, float* out, int n, int period) {
#if RC_PROBE
    int at = 0;
    for (int i = 0; i < n; ++i) {
        out[i] = a[i] * table[at];
        if (++at == period) at = 0;
    }
#else
    for (int i = 0; i < n; ++i) out[i] = a[i] * table[i % period];
#endif
}
