// A kernel on a device, ready to be launched.
//
// In: a cubin. Out: launches on the caller's stream. Loading is done whole before load() returns: code is on the device
// and its attributes are set, so that a launch allocates nothing, synchronises nothing and may be captured in a graph.
// load() itself must not run while any stream of the process is being captured. Not: what the arguments mean.
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
  std::string arch;                  ///< that the cubin was compiled for
  int64_t maxDynamicSharedBytes = 0; ///< the most that a launch will ask for
  std::string variable;              ///< of the cubin, `extern "C"`, whose address is wanted; empty: none
};

struct LaunchShape {
  std::array<unsigned, 3> grid{1, 1, 1};    ///< blocks; each at least 1
  std::array<unsigned, 3> block{1, 1, 1};   ///< threads
  std::array<unsigned, 3> cluster{1, 1, 1}; ///< blocks; all 1: what the kernel itself says
  unsigned dynamicSharedBytes = 0;
};

/// What the driver says about a kernel on its device.
struct KernelAttributes {
  int registers = 0;
  int localBytes = 0; ///< stack and spills, a thread
  int staticSharedBytes = 0;
  int maxThreadsPerBlock = 0;
};

/// Immutable; copies share; any thread may launch. The last copy unloads the code: it must outlive the work it
/// launched.
class LoadedKernel {
public:
  /// Loads into the current context. Blame::Environment: no context, a cubin for another arch, more shared memory than
  /// the device has, or any error of the driver. Blame::Internal: no such entry or variable.
  static Expected<LoadedKernel> load(const LoadRequest& request);

  /// Enqueues. `arguments`: one pointer to each parameter's value, which is copied before this returns. The current
  /// context must be that of load(), and `stream` one of its streams (or null: its default stream).
  Status launch(const LaunchShape& shape, CUstream_st* stream, void** arguments) const;

  const KernelAttributes& attributes() const;

  /// Address of LoadRequest::variable in device memory, as long as the kernel lives; null if none was asked for.
  const void* variable() const;

private:
  struct Impl;
  explicit LoadedKernel(std::shared_ptr<const Impl> impl) : impl(std::move(impl)) {}
  std::shared_ptr<const Impl> impl;
};

} // namespace attnc::jit
