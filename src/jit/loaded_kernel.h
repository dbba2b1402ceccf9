// A kernel loaded on a device, ready to launch.
//
// In: a cubin. Out: launches on the caller's stream. load() finishes all loading before it returns: the code is on the
// device and its attributes are set. So a launch allocates nothing, synchronizes nothing and may be captured in a
// graph. load() itself must not run while any stream of the process is being captured. Not: the meaning of the
// arguments.
#pragma once

#include "attnc/error.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct CUstream_st;

namespace attnc::jit {

struct LoadRequest {
  std::string_view cubin; ///< copied by the driver
  std::string entry;
  std::string arch;                  ///< arch that the cubin was compiled for
  int64_t maxDynamicSharedBytes = 0; ///< the most that a launch will request
  std::string variable;              ///< `extern "C"` variable of the cubin whose address is wanted; empty: none
};

struct LaunchShape {
  std::array<unsigned, 3> grid{1, 1, 1};    ///< number of blocks; each at least 1
  std::array<unsigned, 3> block{1, 1, 1};   ///< threads per block
  std::array<unsigned, 3> cluster{1, 1, 1}; ///< blocks per cluster; all 1: the kernel's own setting
  unsigned dynamicSharedBytes = 0;
};

/// Properties of a kernel on its device, from the driver.
struct KernelAttributes {
  int registers = 0;
  int localBytes = 0; ///< stack and spills per thread
  int staticSharedBytes = 0;
  int maxThreadsPerBlock = 0;
};

/// Immutable. Copies share the code; any thread may launch. Destroying the last copy unloads the code, so it must
/// outlive the work it launched.
class LoadedKernel {
public:
  /// Loads into the current context. Blame::Environment: no context, a cubin for another arch, more shared memory than
  /// the device has, or any error of the driver. Blame::Internal: entry or variable not found.
  static Expected<LoadedKernel> load(const LoadRequest& request);

  /// Enqueues a launch. `arguments`: one pointer to each parameter's value, copied before this returns. The current
  /// context must be that of load(), and `stream` one of its streams (or null: its default stream).
  Status launch(const LaunchShape& shape, CUstream_st* stream, void** arguments) const;

  const KernelAttributes& attributes() const;

  /// Returns the device address of LoadRequest::variable, valid as long as the kernel lives; null if none was
  /// requested.
  const void* variable() const;

private:
  struct Impl;
  explicit LoadedKernel(std::shared_ptr<const Impl> impl) : impl(std::move(impl)) {}
  std::shared_ptr<const Impl> impl;
};

} // namespace attnc::jit
