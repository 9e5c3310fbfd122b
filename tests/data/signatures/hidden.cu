extern "C"
__attribute__((visibility("hidden")))
void solve(const float* a, float* out, int n) { (void)a; }
