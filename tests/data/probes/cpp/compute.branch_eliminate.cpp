// A sum of what exceeds a limit: a branch around an asm barrier against a select.
extern "C" void solve(const float* a, float* out, int n, float limit) {
    float sum = 0;
    for (int i = 0; i < n; ++i) {
#if RC_PROBE
        const float excess = a[i] - limit;
        sum += excess > 0 ? excess : 0.0f;
#else
        if (a[i] > limit) {
            asm volatile("");  // keeps the compiler from turning the branch into a select
            sum += a[i] - limit;
        }
#endif
    }
    *out = sum;
}
