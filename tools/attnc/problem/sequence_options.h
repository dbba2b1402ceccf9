// Options about the sequences of a batch: KV lengths, query positions, pages of K and V, and whether they are packed.
#pragma once

#include "cli_fwd.h"

#include "attnc/problem.h"

#include <optional>
#include <string>

namespace attnc::cli {

struct SequenceOptions {
  bool kvLengths = false;
  int pageSize = 0; ///< rows of a page of K and V; 0: no pages
  bool ragged = false;
  std::string qOffset; ///< "none", "lengths", "tensor"; empty if not given

  void addTo(CLI::App& command, const char* helpOfLengths, const char* helpOfPages);
  void addRagged(CLI::App& command, const char* help);
  /// Whether there are lengths, which pages need.
  bool lengths() const { return kvLengths || pageSize; }
  /// Returns PrepareOptions::offsets.
  std::optional<QueryOffsets> offsets() const;
  /// Returns the same. Default: by kvLengths.
  QueryOffsets settledOffsets() const;
  /// Throws CLI::ValidationError if pages do not divide the length.
  void checkPages(int64_t kvLen) const;
  /// Throws CLI::ValidationError if one of the options is given for a backward kernel.
  void check(bool isForward) const;
};

} // namespace attnc::cli
