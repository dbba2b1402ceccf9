// Trials of tuning: launches of one pass with different tiles, timed in turns under load.
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
  const Training* training; ///< null if there is no backward pass
  bool isBackward;          ///< whether the tuned pass is the backward pass
  Stream stream;

  Status launch(const Prepared& prepared, void* workspace) const;
};

/// A tile that is ready to be launched, and its times so far.
struct Trial {
  Prepared prepared;
  std::shared_ptr<void> workspace; ///< trials of a backward pass share one
  size_t tile;                     ///< index among all tiles
  std::vector<float> samples;      ///< milliseconds per launch, of a burst each
};

/// Fills in the samples of all trials: bursts under load, in turns, so long that clocks settle. A trial takes 1.5 s.
/// Errors: those of launches and of the driver.
Status takeSamples(const PassToTune& pass, std::vector<Trial>& trials);

} // namespace attnc
