// Trials of tuning: launches of one pass with a tile, timed in turns.
#pragma once

#include "api/compiler_impl.h"
#include "attnc/prepared.h"
#include "jit/measure.h"

#include <memory>
#include <vector>

namespace attnc {

/// The pass whose tile is tuned: what its launches read and write.
struct PassToTune {
  const Operands& operands;
  const Outputs& outputs;
  const Training* training; ///< null: there is no backward pass
  bool isBackward;          ///< it is that one
  Stream stream;

  Status launch(const Prepared& prepared, void* workspace) const;
};

/// A tile that is ready to be launched, and what it took so far.
struct Trial {
  Prepared prepared;
  std::shared_ptr<const jit::DeviceMemory> workspace; ///< trials of a backward pass share one
  size_t tile;                                        ///< index among all
  int launches = 1;                                   ///< of a sample
  std::vector<float> samples;                         ///< milliseconds of a launch
};

/// Fills in what a launch of each takes. Errors: of launches and of the driver.
Status takeSamples(const PassToTune& pass, std::vector<Trial>& trials);

} // namespace attnc
