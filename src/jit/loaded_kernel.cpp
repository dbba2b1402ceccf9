#include "jit/loaded_kernel.h"

#include "jit/arch.h"
#include "jit/current_device.h"
#include "jit/driver.h"
#include "support/try.h"

#include <fmt/format.h>

#include <unistd.h>

namespace attnc::jit {

struct LoadedKernel::Impl {
  const Driver* driver = nullptr;
  CUlibrary library = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr variable = 0;
  KernelAttributes attributes;
  pid_t process = ::getpid();

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    // The library belongs to the process that loaded it; a forked child has no CUDA.
    if (library && ::getpid() == process) driver->cuLibraryUnload(library);
  }

  Status open(const LoadRequest& request);
  Status prepare(const LoadRequest& request, const DeviceInfo& device);
};

Status LoadedKernel::Impl::open(const LoadRequest& request) {
  CUresult loaded = driver->cuLibraryLoadData(&library, request.cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  ATTNC_TRY(driver->check(loaded, "cuLibraryLoadData"));
  CUkernel kernel = nullptr;
  CUresult found = driver->cuLibraryGetKernel(&kernel, library, request.entry.c_str());
  if (found == CUDA_ERROR_NOT_FOUND) return Error::internal(fmt::format("the cubin has no kernel `{}`", request.entry));
  ATTNC_TRY(driver->check(found, "cuLibraryGetKernel"));
  ATTNC_TRY(driver->check(driver->cuKernelGetFunction(&function, kernel), "cuKernelGetFunction"));
  if (request.variable.empty()) return {};
  size_t bytes = 0;
  found = driver->cuLibraryGetGlobal(&variable, &bytes, library, request.variable.c_str());
  if (found == CUDA_ERROR_NOT_FOUND)
    return Error::internal(fmt::format("the cubin has no variable `{}`", request.variable));
  return driver->check(found, "cuLibraryGetGlobal");
}

Status LoadedKernel::Impl::prepare(const LoadRequest& request, const DeviceInfo& device) {
  // CUDA loads code lazily, at the first launch, which a capture does not allow.
  if (driver->funcLoad) ATTNC_TRY(driver->check(driver->funcLoad(function), "cuFuncLoad"));
  const std::pair<CUfunction_attribute, int*> wanted[] = {
      {CU_FUNC_ATTRIBUTE_NUM_REGS, &attributes.registers},
      {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &attributes.localBytes},
      {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &attributes.staticSharedBytes},
      {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &attributes.maxThreadsPerBlock},
  };
  for (auto [attribute, value] : wanted)
    ATTNC_TRY(driver->check(driver->cuFuncGetAttribute(value, attribute, function), "cuFuncGetAttribute"));
  int64_t shared = attributes.staticSharedBytes + request.maxDynamicSharedBytes;
  if (request.maxDynamicSharedBytes < 0 || shared > device.sharedBytesPerBlock)
    return Error::environment(fmt::format("`{}` needs {} bytes of shared memory a block and {} has {}", request.entry,
                                          shared, device.name, device.sharedBytesPerBlock),
                              "use a smaller head dimension, or another kernel family");
  CUresult set = driver->cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                            int(request.maxDynamicSharedBytes));
  return driver->check(set, "cuFuncSetAttribute");
}

Expected<LoadedKernel> LoadedKernel::load(const LoadRequest& request) {
  ATTNC_TRY_AS(driver, Driver::get());
  ATTNC_TRY_AS(device, currentDevice());
  ATTNC_TRY(checkArchRuns(request.arch, device->major, device->minor));
  auto impl = std::make_shared<Impl>();
  impl->driver = *driver;
  ATTNC_TRY(impl->open(request));
  ATTNC_TRY(impl->prepare(request, *device));
  return LoadedKernel(std::move(impl));
}

Status LoadedKernel::launch(const LaunchShape& shape, CUstream_st* stream, void** arguments) const {
  CUlaunchConfig config = {};
  config.gridDimX = shape.grid[0];
  config.gridDimY = shape.grid[1];
  config.gridDimZ = shape.grid[2];
  config.blockDimX = shape.block[0];
  config.blockDimY = shape.block[1];
  config.blockDimZ = shape.block[2];
  config.sharedMemBytes = shape.dynamicSharedBytes;
  config.hStream = stream;
  CUlaunchAttribute attribute = {};
  if (shape.cluster != std::array<unsigned, 3>{1, 1, 1}) {
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = shape.cluster[0];
    attribute.value.clusterDim.y = shape.cluster[1];
    attribute.value.clusterDim.z = shape.cluster[2];
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  return impl->driver->check(impl->driver->cuLaunchKernelEx(&config, impl->function, arguments, nullptr),
                             "cuLaunchKernelEx");
}

const KernelAttributes& LoadedKernel::attributes() const { return impl->attributes; }

const void* LoadedKernel::variable() const { return reinterpret_cast<const void*>(impl->variable); }

} // namespace attnc::jit
