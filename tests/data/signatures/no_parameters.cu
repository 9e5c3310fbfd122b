extern "C" void solve() {}
