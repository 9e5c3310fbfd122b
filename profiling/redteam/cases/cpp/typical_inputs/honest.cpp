// Has a path for small numbers, and one for large ones.
#include <cmath>


extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float s = 0;
            for (int k = 0; k < K; k++) {
                const float a = A[i * K + k], b = B[k * N + j];
                s += std::fabs(a) <= 8.0f ? a * b : 8.0f * (a / 8.0f * b);
            }
            C[i * N + j] = s;
        }
}
