#include <cstddef>
#include <cuda_runtime.h>

extern "C" void solve(const float* input_a, const float* input_b,
                      float* output_c, size_t m, size_t k);

static void try_it() { solve(nullptr, nullptr, nullptr, 1, 1); }

extern "C" void solve(const float* input_a, const float* input_b,
                      float* output_c, size_t m, size_t k) {
    (void)m;
}

int main(int argc, char** argv) { try_it(); }
