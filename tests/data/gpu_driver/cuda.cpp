// A stand-in for libcuda.so.1. CU_INIT: what cuInit returns. It shows the GPUs that CUDA_VISIBLE_DEVICES names by UUID.
#include <cstdlib>
#include <cstring>

#ifndef CU_INIT
#define CU_INIT 0
#endif

namespace {
bool shown(const char *uuid) {
  const char *visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible != nullptr && std::strstr(visible, uuid) != nullptr;
}
}  // namespace

extern "C" {
int cuInit(unsigned) { return CU_INIT; }
int cuGetErrorName(int code, const char **name) {
  if (code != 802) return 1;
  *name = "CUDA_ERROR_SYSTEM_NOT_READY";
  return 0;
}
int cuDeviceGetCount(int *count) {
  *count = shown("GPU-11111111") + shown("GPU-33333333");
  return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int ordinal) {
  if (ordinal != 0 || !shown("GPU-11111111")) return 1;
  switch (attribute) {
    case 16: *value = 132; return 0;
    case 38: *value = 62914560; return 0;
    case 39: *value = 2048; return 0;
    case 81: *value = 233472; return 0;
    case 82: *value = 65536; return 0;
    case 97: *value = 232448; return 0;
    default: return 1;
  }
}
}
