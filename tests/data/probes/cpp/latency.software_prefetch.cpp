extern "C" void solve(const float* a, const int* index, float* out, int n) {
    for (int i = 0; i < n; ++i) {
#if RC_PROBE
        __builtin_prefetch(a + index[i + 16]);
#endif
        out[i] = a[index[i]] * 2.0f;
    }
}
