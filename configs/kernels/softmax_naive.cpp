#include <cmath>

// y[r,:] = softmax(x[r,:]), row-major, float32: three passes over each row.
extern "C" void solve(const float* x, float* y, int rows, int cols) {
    for (int r = 0; r < rows; ++r) {
        const float* in = x + (long)r * cols;
        float* out = y + (long)r * cols;
        float largest = in[0];
        for (int c = 1; c < cols; ++c) {
            if (in[c] > largest) largest = in[c];
        }
        float sum = 0.0f;
        for (int c = 0; c < cols; ++c) {
            out[c] = std::exp(in[c] - largest);
            sum += out[c];
        }
        for (int c = 0; c < cols; ++c) {
            out[c] = out[c] / sum;
        }
    }
}
