extern "C" void solve(const float* a, const float* b, float* c, size_t n) {
    (void)n;
}
