struct Shape { int m, n; };
extern "C" void solve(const float* a, float* out, Shape shape) { (void)a; }
