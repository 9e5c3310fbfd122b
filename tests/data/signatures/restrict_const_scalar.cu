extern "C" void solve(const float* __restrict__ X, float* __restrict__ Y, const int N) { Y[0] = X[N]; }
