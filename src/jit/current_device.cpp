#include "jit/current_device.h"

#include "jit/arch.h"
#include "jit/driver.h"
#include "support/try.h"

namespace attnc::jit {

namespace {

Expected<DeviceInfo> describe(const Driver& driver, CUdevice device) {
  DeviceInfo info;
  info.ordinal = device;
  char name[256] = {};
  ATTNC_TRY(driver.check(driver.cuDeviceGetName(name, sizeof name - 1, device), "cuDeviceGetName"));
  info.name = name;
  size_t memory = 0;
  ATTNC_TRY(driver.check(driver.cuDeviceTotalMem(&memory, device), "cuDeviceTotalMem"));
  info.memoryBytes = int64_t(memory);
  int l2 = 0;
  const std::pair<CUdevice_attribute, int*> wanted[] = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &info.major},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &info.minor},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &info.multiprocessors},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &info.sharedBytesPerBlock},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2},
  };
  for (auto [attribute, value] : wanted)
    ATTNC_TRY(driver.check(driver.cuDeviceGetAttribute(value, attribute, device), "cuDeviceGetAttribute"));
  info.l2Bytes = l2;
  info.arch = archName(info.major, info.minor);
  return info;
}

} // namespace

Expected<CUctx_st*> currentContext() {
  ATTNC_TRY_AS(driver, Driver::get());
  CUcontext context = nullptr;
  ATTNC_TRY((*driver)->check((*driver)->cuCtxGetCurrent(&context), "cuCtxGetCurrent"));
  if (!context)
    return Error::environment("this thread has no current CUDA context",
                              "call cudaSetDevice or cuCtxSetCurrent first, or name the arch");
  return context;
}

Expected<DeviceInfo> currentDevice() {
  ATTNC_TRY(currentContext());
  const Driver& cuda = **Driver::get();
  CUdevice device = 0;
  ATTNC_TRY(cuda.check(cuda.cuCtxGetDevice(&device), "cuCtxGetDevice"));
  return describe(cuda, device);
}

} // namespace attnc::jit
