// Parameters of the sm90 forward kernel: the common ones, tensor maps and the order of tiles.
#pragma once

#include "api/forward_params.h"
#include "plan/catalog.h"
#include "templates/params_sm90.cuh"

namespace attnc {

/// What a launch needs to know of the device.
struct DeviceTraits {
  int multiprocessors = 0;
  int64_t l2Bytes = 0;
};

/// Workspace of the sm90 forward kernel: two counters by which CTAs take tiles.
constexpr size_t kSm90WorkspaceBytes = 2 * sizeof(unsigned);

/// Whether the sm90 kernel takes operands of this layout: tensor maps must describe q, k and v, and out is stored 16
/// bytes at a time. If not, Blame::Environment naming the tensor and what of it. Null is an aligned address, and empty
/// tensors always fit. The driver, which encodes the maps, may still refuse one. Precondition: checkOperands accepted
/// `args`.
Status checkLayoutSm90(const ForwardArgs& args);

/// `base` comes from makeForwardParams(); q_len is at least 1. Errors (environment): those of checkLayoutSm90, and what
/// the driver refuses. `workspace`: as Kernel::forward takes it; null deals the tiles round robin.
Expected<ForwardParamsSm90> makeForwardParamsSm90(const ForwardArgs& args, const ForwardParams& base,
                                                  const plan::Plan& plan, const DeviceTraits& device,
                                                  void* workspace);

} // namespace attnc
