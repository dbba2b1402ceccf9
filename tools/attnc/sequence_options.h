// What is told of the sequences of a batch one by one: KV lengths, where queries stand, and that they are packed.
#pragma once

#include "attnc/problem.h"

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

namespace attnc::cli {

struct SequenceOptions {
  bool kvLengths = false;
  bool ragged = false;
  std::string qOffset; ///< "none", "lengths", "tensor"; empty: not said

  void addTo(CLI::App& command, const char* helpOfLengths);
  void addRagged(CLI::App& command, const char* help);
  /// As PrepareOptions::offsets.
  std::optional<QueryOffsets> offsets() const;
  /// The same, and by kvLengths where it is not said.
  QueryOffsets settledOffsets() const;
  /// Throws CLI::ValidationError where one of the options is given and the kernel is no forward one.
  void check(bool isForward) const;
};

} // namespace attnc::cli
