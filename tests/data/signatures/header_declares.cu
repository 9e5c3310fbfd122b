#include "declares_solve.h"
void solve(const half* A, half* C, int N) { (void)N; }
