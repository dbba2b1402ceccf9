#include "jit/driver.h"

#include "jit/dynamic_library.h"

#include <fmt/format.h>

namespace attnc::jit {

namespace {

constexpr char kNoDriver[] = "install the NVIDIA driver; without a GPU everything but launching works";

Expected<Driver> openDriver() {
  std::string why;
  auto library = DynamicLibrary::open("libcuda.so.1", why);
  if (!library) return Error::environment("the CUDA driver was not found: " + why, kNoDriver);
  Driver driver;
  std::string missing;
// Twice, so that the macros of cuda.h have done their work before a name becomes a string.
#define ATTNC_NAME(function) #function
#define X(function)                                                                                                    \
  driver.function = reinterpret_cast<decltype(driver.function)>(library->symbol(ATTNC_NAME(function)));                \
  if (!driver.function) missing += std::string(" ") + ATTNC_NAME(function);
  ATTNC_DRIVER_FUNCTIONS(X)
#undef X
#undef ATTNC_NAME
  driver.funcLoad = reinterpret_cast<decltype(driver.funcLoad)>(library->symbol("cuFuncLoad"));
  driver.eventElapsedTime = reinterpret_cast<decltype(driver.eventElapsedTime)>(library->symbol("cuEventElapsedTime"));
  if (!driver.eventElapsedTime) missing += " cuEventElapsedTime";
  if (!missing.empty())
    return Error::environment(library->path() + " lacks" + missing, "install a driver for CUDA 13 or later");
  if (Status ready = driver.check(driver.cuInit(0), "cuInit"); !ready) return std::move(ready).error();
  return driver;
}

} // namespace

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
