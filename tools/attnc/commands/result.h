// The results of one run, on any device.
#pragma once

#include "problem/host_tensor.h"
#include "show/json_report.h"

#include <optional>
#include <string>

namespace attnc::cli {

struct RunResult {
  HostTensor out;         ///< [B, H, Q_LEN, DV], dtype of q
  HostTensor lse;         ///< f32 [B, H, Q_LEN]
  HostTensor rowMax;      ///< f32 [B, H, Q_LEN]
  bool hasSoftmax = true; ///< Whether lse and rowMax are of one: a mod with a weight_mod has none.
  /// With --backward, by their names in files: "dq", "dk" and "dv" with the shapes and dtypes of q, k and v, and
  /// "d_<capture>" as in HostOperands::gradients. Without it, the outputs of the mod by their names.
  NamedTensors gradients;
  NamedTensors cache;  ///< "k" and "v" including appended rows; empty if none were appended
  std::string summary; ///< lines about the device, the kernel and times
  JsonReport facts;    ///< the same for programs: "device", "passes", "blockMask"
  std::string warning; ///< why the kernel is slow; may be empty
};

} // namespace attnc::cli
