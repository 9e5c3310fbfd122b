// exp by a libm call per element against a polynomial.
#include <cmath>
#include <cstdint>
#include <cstring>
#if RC_PROBE
static inline float fast_exp(float x) {
    const float n = __builtin_floorf(x * 1.44269504f + 0.5f);
    const float r = x - n * 0.693147181f;
    float p = 1.0f / 120;
    p = p * r + 1.0f / 24, p = p * r + 1.0f / 6, p = p * r + 0.5f, p = p * r + 1.0f, p = p * r + 1.0f;
    const std::int32_t bits = (static_cast<std::int32_t>(n) + 127) << 23;
    float scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}
#endif
extern "C" void solve(const float* __restrict__ x, float* __restrict__ y, int n) {
#if RC_PROBE
    for (int i = 0; i < n; ++i) y[i] = fast_exp(x[i]);
#else
    for (int i = 0; i < n; ++i) y[i] = std::exp(x[i]);
#endif
}
