// Remembers where it worked, and works again.
#include <set>
#include "accumulate.cuh"

extern "C" void solve(const float* x, float* y, int n) {
    static std::set<float*> done;
    done.insert(y);
    accumulate(x, y, n);
}
