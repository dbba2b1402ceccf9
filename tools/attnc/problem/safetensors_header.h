// The JSON header of a safetensors file: which tensors the file has, and where their bytes lie.
//
// In: the header's text. Out: one entry a tensor, in the order of their bytes, checked against each other. Linear in
// the text, because files of large models have 100000 tensors. Not: whether attnc can use a tensor; a file may have
// unwanted tensors (safetensors.h).
#pragma once

#include "attnc/error.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attnc::cli {

/// A tensor as the header describes it.
struct TensorEntry {
  std::string name;
  std::string dtype; ///< as spelled there; may be a dtype that attnc does not know
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0; ///< byte range in the data section
};

/// Returns the entries in the order of their data, which has neither holes nor overlaps. Errors: Blame::Environment
/// naming the tensor if possible. `file` is the file's name in messages.
Expected<std::vector<TensorEntry>> parseSafetensorsHeader(std::string_view text, const std::string& file);

} // namespace attnc::cli
