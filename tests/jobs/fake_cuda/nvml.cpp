// Stands for libnvidia-ml.so.1, next to the fake of CUDA: its GPU runs at 1200 MHz, and has taken 8 J more each time
// that one asks.
#include <cstring>

extern "C" {
int nvmlInit_v2() { return 0; }

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  static char gpu;
  *device = &gpu;
  return std::strcmp(uuid, "GPU-30313233-3435-3637-3839-616263646566") ? 6 : 0; // 6: not found
}

int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* millijoules) {
  static unsigned long long taken = 0;
  *millijoules = taken += 8000;
  return 0;
}

int nvmlDeviceGetClockInfo(void*, int type, unsigned* mhz) {
  *mhz = type == 1 ? 1200 : 0;
  return 0;
}
}
