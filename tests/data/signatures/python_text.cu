#include <cuda_runtime.h>
"""
Invert an image. Every pixel has four bytes \
"""
extern "C" void solve(unsigned char* image, int width, int height) {
    (void)image;
}
