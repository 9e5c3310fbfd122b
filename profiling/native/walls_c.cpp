// The walls for a worker that is no native program: a Triton worker loads them as a shared library.
#include "gpu.h"
#include "seal.h"
#include "walls.h"

extern "C" {
uint64_t walls_enter_namespaces() { return walls::enter_namespaces(); }
bool walls_private_tree() { return walls::private_tree(nullptr, 0, nullptr); }
bool walls_drop_privileges(bool root, unsigned own_uid) { return walls::drop_privileges(root, own_uid); }
void walls_limit_resources(uint64_t file_bytes) { walls::limit_resources(file_bytes); }
bool walls_filter_system_calls(bool pid_namespace) { return walls::filter_system_calls(pid_namespace, false); }
bool walls_seal() {
    GpuRange own;
    return !gpu_freeze(&own) && seal::put_on({{own.address, own.address + own.bytes}});
}
}
