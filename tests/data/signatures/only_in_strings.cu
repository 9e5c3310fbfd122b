#include <cstdio>
static const char* usage = R"help(
extern "C" void solve(const float* A, float* C, int N) {
})help";
static const char* other = "extern \"C\" void solve(float* A) {}";
int main() { std::printf("%s%s", usage, other); }
