// Tuning: finds a kernel's fastest tile by measurement and stores it (Compiler::tune, tuneTraining).
#pragma once

#include "attnc/prepared.h"

#include <optional>
#include <string>
#include <vector>

namespace attnc {

/// A tile that was tried.
struct TunedTile {
  std::string tile;      ///< The tile, spelled as in KernelOptions::tile.
  double ms = 0;         ///< Milliseconds of a launch under load: a steady one of three bursts. 0: not launched.
  bool isWinner = false; ///< Whether it is the choice.
  /// Why the tile was rejected: it does not compile, or its results differ from those of the model's tile. Empty if it
  /// was not rejected.
  std::string passedOver;
};

/// The result of tuning one kernel.
struct TunedKernel {
  std::vector<TunedTile> tiles; ///< The tiles, the model's own first. Empty if PrepareOptions asked for a tile.
  std::string file;             ///< File that stores the choice. Empty if there was no choice or no writable directory.
};

/// The result of tuning.
struct Tuning {
  Preparation preparation;             ///< The preparation with the winners.
  TunedKernel forward;                 ///< Result for the forward or decode kernel.
  std::optional<TunedKernel> backward; ///< Result for the backward kernel. Set by tuneTraining().
};

} // namespace attnc
