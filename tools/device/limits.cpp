#include "tools/device/limits.h"

#include "tools/device/functions.h"

#include "jit/current_device.h"
#include "support/try.h"

namespace attnc::device {

int tensorFlopsPerClock(int major, int minor) {
  switch (10 * major + minor) {
  case 80: return 2048;
  case 86:
  case 87:
  case 89: return 1024;
  case 90: return 4096;
  case 100:
  case 103: return 8192;
  case 120:
  case 121: return 1024;
  }
  return 0;
}

Expected<TensorCores> tensorCores() {
  ATTNC_TRY_AS(info, jit::currentDevice());
  ATTNC_TRY_AS(functions, Functions::get());
  const jit::Driver& driver = *(*functions)->driver;
  int kiloHertz = 0;
  if (Status ok = driver.check(driver.cuDeviceGetAttribute(&kiloHertz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, info->ordinal),
                               "cuDeviceGetAttribute");
      !ok)
    return std::move(ok).error();
  return TensorCores{info->multiprocessors, 1e3 * kiloHertz, tensorFlopsPerClock(info->major, info->minor)};
}

} // namespace attnc::device
