extern "C" void solve(const float* a, float* b, float2 range, int n) { b[0] = range.x; }
