// A stand-in for libnvidia-ml.so.1. INIT: what nvmlInitWithFlags returns. COUNT: how many GPUs there are. BUSY: whether
// this process and process 1 compute on GPU 0, under MPS.
#include <cstdio>
#include <cstring>
#include <unistd.h>

#ifndef INIT
#define INIT 0
#endif
#ifndef COUNT
#define COUNT 3
#endif
#ifndef BUSY
#define BUSY 0
#endif

namespace {
constexpr int kNotSupported = 3, kNotFound = 6, kInsufficientSize = 7, kLost = 15;
const char *const kUuids[] = {"GPU-11111111-2222-3333-4444-555555555555", "GPU-22222222-2222-3333-4444-555555555555",
                              "GPU-33333333-2222-3333-4444-555555555555"};
struct Device {
  unsigned index;
};
Device devices[] = {{0}, {1}, {2}};
struct Process {
  unsigned pid;
  unsigned long long memory;
  unsigned instance, compute;
};

int number(Device *device, unsigned value, unsigned *out) {
  if (device->index != 0) return kNotSupported;
  *out = value;
  return 0;
}
}  // namespace

extern "C" {
int nvmlInitWithFlags(unsigned) { return INIT; }
const char *nvmlErrorString(int) { return "stand-in error"; }
int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = COUNT;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
  if (index == 1) return kLost;
  *device = &devices[index];
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) {
  for (auto &known : devices)
    if (std::strcmp(uuid, kUuids[known.index]) == 0) {
      *device = &known;
      return 0;
    }
  return kNotFound;
}
int nvmlDeviceGetUUID(Device *device, char *uuid, unsigned size) {
  std::snprintf(uuid, size, "%s", kUuids[device->index]);
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
  *major = device->index == 0 ? 9 : 12;
  *minor = 0;
  return 0;
}
int nvmlDeviceGetName(Device *device, char *name, unsigned size) {
  std::snprintf(name, size, "%s", device->index == 0 ? "NVIDIA H200" : "\xff\xfe");
  return 0;
}
int nvmlDeviceGetMemoryInfo(Device *device, unsigned long long *memory) {
  if (device->index != 0) return kNotSupported;
  memory[0] = 150754820096ull;
  memory[1] = memory[0];
  memory[2] = 0;
  return 0;
}
int nvmlDeviceGetMaxClockInfo(Device *device, int clock, unsigned *megahertz) {
  *megahertz = device->index != 0 ? 0 : clock == 1 ? 1980 : clock == 2 ? 3201 : 1;
  return 0;
}
int nvmlDeviceGetClockInfo(Device *device, int clock, unsigned *megahertz) {
  return number(device, clock == 1 ? 1455 : 3201, megahertz);
}
int nvmlDeviceGetMemoryBusWidth(Device *device, unsigned *bits) { return number(device, 6144, bits); }
int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *milliwatts) { return number(device, 700000, milliwatts); }
int nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) { return number(device, 699500, milliwatts); }
int nvmlDeviceGetTemperature(Device *device, int, unsigned *celsius) { return number(device, 61, celsius); }
int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *mask) {
  if (device->index != 0) return kNotSupported;
  *mask = 0x4;
  return 0;
}
int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
  *pending = 1;
  return number(device, 0, current);
}
int nvmlDeviceGetEccMode(Device *device, unsigned *current, unsigned *pending) {
  *pending = 1;
  return number(device, 1, current);
}
int nvmlDeviceGetPersistenceMode(Device *device, unsigned *mode) { return number(device, 0, mode); }
int nvmlSystemGetDriverVersion(char *version, unsigned size) {
  std::snprintf(version, size, "580.65.06");
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = 13000;
  return 0;
}
int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size) {
  std::snprintf(name, size, "%s", pid == 1 ? "/usr/bin/nvidia-cuda-mps-server" : "python");
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *processes) {
  if (device->index != 0) return kNotSupported;
  const unsigned room = *count;
  *count = BUSY ? 2 : 0;
  if (room < *count) return kInsufficientSize;
  if (BUSY) {
    processes[0] = {static_cast<unsigned>(getpid()), 1, 0, 0};
    processes[1] = {1, 1, 0, 0};
  }
  return 0;
}
}  // nvmlDeviceGetMPSComputeRunningProcesses_v3 is missing, as in an old driver
