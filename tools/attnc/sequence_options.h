// What is told of the sequences of a batch one by one: KV lengths, where queries stand, pages of K and V, and that they are
// packed.
#pragma once

#include "attnc/problem.h"

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

namespace attnc::cli {

struct SequenceOptions {
  bool kvLengths = false;
  int pageSize = 0;    ///< rows of a page of K and V; 0: they do not lie in pages
  bool ragged = false;
  std::string qOffset; ///< "none", "lengths", "tensor"; empty: not said

  void addTo(CLI::App& command, const char* helpOfLengths, const char* helpOfPages);
  void addRagged(CLI::App& command, const char* help);
  /// Pages need lengths.
  bool lengths() const { return kvLengths || pageSize; }
  /// As PrepareOptions::offsets.
  std::optional<QueryOffsets> offsets() const;
  /// The same, and by kvLengths where it is not said.
  QueryOffsets settledOffsets() const;
  /// Throws CLI::ValidationError where one of the options is given and the kernel is a backward one.
  void check(bool isForward) const;
};

} // namespace attnc::cli
