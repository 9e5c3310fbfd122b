#include <cmath>

// y[r,:] = (x[r,:] - mean) / sqrt(var + 1e-5) * weight + bias, row-major, float32: three passes over each row.
extern "C" void solve(const float* x, const float* weight, const float* bias, float* y, int rows, int cols) {
    for (int r = 0; r < rows; ++r) {
        const float* in = x + (long)r * cols;
        float* out = y + (long)r * cols;
        float sum = 0.0f;
        for (int c = 0; c < cols; ++c) sum += in[c];
        float mean = sum / cols;
        float squares = 0.0f;
        for (int c = 0; c < cols; ++c) squares += (in[c] - mean) * (in[c] - mean);
        float deviation = std::sqrt(squares / cols + 1e-5f);
        for (int c = 0; c < cols; ++c) out[c] = (in[c] - mean) / deviation * weight[c] + bias[c];
    }
}
