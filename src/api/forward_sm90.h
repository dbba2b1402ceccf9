// Parameters of the sm90 forward kernel: the common ones, tensor maps and the order of tiles.
#pragma once

#include "api/forward_params.h"
#include "kernels/catalog.h"
#include "templates/params_sm90.cuh"

namespace attnc {

/// What a launch needs to know of the device.
struct DeviceTraits {
  int multiprocessors = 0;
  int64_t l2Bytes = 0;
};

/// Workspace of the sm90 forward kernel: two counters by which CTAs take tiles.
constexpr size_t kSm90WorkspaceBytes = 2 * sizeof(unsigned);

/// `base` comes from makeForwardParams(); q_len is at least 1. Errors (environment): a layout that TMA cannot
/// describe. `workspace`: as Kernel::forward takes it; null deals the tiles round robin.
Expected<ForwardParamsSm90> makeForwardParamsSm90(const ForwardArgs& args, const ForwardParams& base,
                                                  const kernels::Plan& plan, const DeviceTraits& device,
                                                  void* workspace);

} // namespace attnc
