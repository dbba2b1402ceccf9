#include "jit/driver.h"
#include "support/try.h"

#include <fmt/format.h>

namespace attnc::jit {

namespace {

constexpr char kNoDriver[] = "install the NVIDIA driver; without a GPU everything but launching works";

Expected<Driver> openDriver() {
  ATTNC_TRY_AS(symbols, DriverSymbols::open());
  Driver driver;
#define X(function) symbols->find(driver.function, ATTNC_DRIVER_NAME(function));
  ATTNC_DRIVER_FUNCTIONS(X)
#undef X
  symbols->find(driver.eventElapsedTime, "cuEventElapsedTime");
  symbols->findOptional(driver.funcLoad, "cuFuncLoad");
  ATTNC_TRY(symbols->foundAll());
  ATTNC_TRY(driver.check(driver.cuInit(0), "cuInit"));
  return driver;
}

} // namespace

Expected<DriverSymbols> DriverSymbols::open() {
  std::string why;
  auto library = DynamicLibrary::open("libcuda.so.1", why);
  if (!library) return Error::environment("the CUDA driver was not found: " + why, kNoDriver);
  return DriverSymbols(*std::move(library));
}

Status DriverSymbols::foundAll() const {
  if (missing.empty()) return {};
  return Error::environment(library.path() + " lacks" + missing, "install a driver for CUDA 13 or later");
}

Expected<const Driver*> Driver::get() {
  static const Expected<Driver> driver = openDriver();
  if (!driver) return driver.error();
  return &*driver;
}

Status Driver::check(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return {};
  const char *name = nullptr, *text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  std::string message = fmt::format("{} fails with {} ({})", call, name ? name : std::to_string(int(result)),
                                    text ? text : "no description");
  switch (result) {
  case CUDA_ERROR_NO_DEVICE: return Error::environment(message, "there is no GPU, or CUDA_VISIBLE_DEVICES hides it");
  case CUDA_ERROR_OUT_OF_MEMORY: return Error::environment(message, "free some device memory");
  case CUDA_ERROR_NOT_INITIALIZED:
    return Error::environment(message, "CUDA does not survive fork(); start the process anew");
  default: return Error::environment(message);
  }
}

} // namespace attnc::jit
