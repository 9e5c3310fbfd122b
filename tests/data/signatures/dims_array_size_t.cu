extern "C" void solve(const float* input, int dim, float* output, const size_t* shape, size_t ndim) {
    (void)dim;
}
