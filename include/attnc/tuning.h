// Tuning: which tile of a kernel is the fastest, measured once and kept (Compiler::tune, tuneTraining).
#pragma once

#include "attnc/prepared.h"

#include <optional>
#include <string>
#include <vector>

namespace attnc {

/// A tile that was tried.
struct TunedTile {
  std::string tile;       ///< as KernelOptions::tile
  double ms = 0;          ///< of a launch, the median of the steadier half of the rounds; 0: it was not launched
  bool isWinner = false;
  std::string passedOver; ///< why it is none: it does not compile, or its results are not those of the model's; else empty
};

/// What tuning found of one kernel.
struct TunedKernel {
  std::vector<TunedTile> tiles; ///< the model's own first; none where a tile was asked for
  std::string file; ///< where the choice is stored; empty: nothing was to choose, or no directory may be written
};

/// What tuning found.
struct Tuning {
  Preparation preparation;             ///< of the winners
  TunedKernel forward;                 ///< of the forward or decode kernel
  std::optional<TunedKernel> backward; ///< set by tuneTraining()
};

} // namespace attnc
