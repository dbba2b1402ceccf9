// A launch among many in a row: its time, energy and clock. A GPU that computes for seconds is bound by its limit of
// power, a rested one is not.
#pragma once

#include "tools/device/device.h"

#include <functional>
#include <optional>
#include <string>

namespace attnc::device {

/// NVML's energy counter and clock of one GPU.
class Nvml {
public:
  /// Opens libnvidia-ml for a GPU, "GPU-...". nullopt if it is not found, or has no counters of this GPU.
  static std::optional<Nvml> open(const std::string& uuid);

  /// Returns the energy since the driver was loaded. The counter moves about every 0.1 s.
  double joules() const;
  double mhz() const; ///< clock of the SMs

private:
  int (*energyOf)(void* device, unsigned long long* millijoules) = nullptr;
  int (*clockOf)(void* device, int type, unsigned* mhz) = nullptr;
  void* device = nullptr;
};

/// Returns the UUID of the current context's device as NVML spells it. NVML does not find that of a part of a GPU
/// (MIG).
Expected<std::string> uuid();

/// What a launch takes under load.
struct Load {
  double ms = 0, joules = 0, mhz = 0;
};

/// Measures a launch in a burst of about a second, behind a quarter of it that settles the clock. `run` enqueues one,
/// which takes about `ms`. nullopt: the energy counter moved less than twice.
Expected<std::optional<Load>> underLoad(const Nvml& nvml, CUstream_st* stream, double ms,
                                        const std::function<Status()>& run);

} // namespace attnc::device
