#include <cstdint>
extern "C" void solve(const int32_t* x, int64_t* y, int n) {
    int64_t total = 0;
    for (int i = 0; i < n; i++) {
        total += int64_t(x[i]) * x[i];
        y[i] = total;
    }
}
