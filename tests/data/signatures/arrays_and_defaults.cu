#include <climits>
#include <cstddef>
extern "C" void solve(const float A[], float C[16], const float* bias = NULL, int limit = INT_MAX, float alpha = 1.0f) {
    (void)A;
}
