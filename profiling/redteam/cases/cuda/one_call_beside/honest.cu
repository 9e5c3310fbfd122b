// All calls on one stream.
#include "short.cuh"

extern "C" void solve(const float* x, float* y, int n) { scaled(x, y, n); }
