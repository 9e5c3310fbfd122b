// An atomic update per element against a private sum and one update.
static void add(float* to, float value) {
    unsigned* word = reinterpret_cast<unsigned*>(to);
    unsigned old = __atomic_load_n(word, __ATOMIC_RELAXED), next;
    do {
        float sum;
        __builtin_memcpy(&sum, &old, sizeof sum);
        sum += value;
        __builtin_memcpy(&next, &sum, sizeof sum);
    } while (!__atomic_compare_exchange_n(word, &old, next, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
}
extern "C" void solve(const float* a, float* out, int n) {
#if RC_PROBE
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += a[i];
    *out = sum;
#else
    for (int i = 0; i < n; ++i) add(out, a[i]);
#endif
}
