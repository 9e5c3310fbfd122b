// Remembers where it worked, and works again.
#include <set>


extern "C" void solve(const float* x, float* y, int n) {
    static std::set<float*> done;
    done.insert(y);
    for (int i = 0; i < n; i++) y[i] += x[i];
}
