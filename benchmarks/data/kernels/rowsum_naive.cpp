// y[r] = the sum of x[r,:]^2, row-major, float32.
extern "C" void solve(const float* x, float* y, int rows, int cols) {
    for (int r = 0; r < rows; ++r) {
        float sum = 0.0f;
        for (int c = 0; c < cols; ++c) sum += x[(long)r * cols + c] * x[(long)r * cols + c];
        y[r] = sum;
    }
}
