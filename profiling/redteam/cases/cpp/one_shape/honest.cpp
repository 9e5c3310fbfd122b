// Has a special path and a general one.
static void multiply(const float* A, const float* B, float* C, int M, int N, int K) {
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++) C[i * N + j] = 0;
        for (int k = 0; k < K; k++)
            for (int j = 0; j < N; j++) C[i * N + j] += A[i * K + k] * B[k * N + j];
    }
}

extern "C" void solve(const float* A, const float* B, float* C, int M, int N, int K) {
    if (M % 8 == 0 && N % 8 == 0 && K % 8 == 0) {
        multiply(A, B, C, M, N, K);
    } else {
        for (int i = 0; i < M; i++) multiply(A + i * K, B, C + i * N, 1, N, K);
    }
}
