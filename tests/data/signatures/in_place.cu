extern "C" void solve(unsigned char* image, int width, int height) { image[0] = width * height; }
