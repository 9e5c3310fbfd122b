#include "probe.h"
__global__ void kernel(const float* x, float* y) {
#if RC_PROBE
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    y[threadIdx.x] = 2 * x[threadIdx.x];
}
