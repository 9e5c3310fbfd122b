#ifdef FAST
extern "C" void solve(const float* a, float* out, int n) { (void)a; }
#endif
extern "C" void solve(const float* a, float* out, int n) { (void)n; }
extern "C" void solve(const float* a, float* out, long n) { (void)n; }
