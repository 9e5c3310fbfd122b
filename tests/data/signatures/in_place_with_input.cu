extern "C" void solve(float* logits,        // [B, V]
                      const int* input_ids, // [B, T]
                      float penalty, int B, int V, int T) {
    (void)penalty;
}
