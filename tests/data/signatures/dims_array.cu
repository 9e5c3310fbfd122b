extern "C" void solve(const float* input, int dim, int* output, const int* shape, int ndim) {
    (void)dim;
}
