#include "launch/kernel_options.h"

#include "attnc/operands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>

namespace attnc {

/// Returns the features that mean nothing to kernels of a kind.
static Features unreadBy(KernelKind kind) {
  switch (kind) {
  case KernelKind::Forward: return {Feature::Deterministic, Feature::Tangents};
  case KernelKind::Decode: return {Feature::Deterministic, Feature::RowScales, Feature::Tangents};
  case KernelKind::Backward: return {Feature::RowMax};
  case KernelKind::BlockMask:
    return {Feature::Fp8Kv,         Feature::Fp8Q,     Feature::RowScales, Feature::RowMax,
            Feature::Deterministic, Feature::Tangents, Feature::Reductions};
  }
  return {};
}

Features featuresOf(const KernelOptions& options) {
  const bool isMask = options.kind == KernelKind::BlockMask;
  Features features = options.features;
  features.set(Feature::Offsets, options.offsets != QueryOffsets::None);
  features.set(Feature::Pages, options.pageSize != 0);
  features.set(Feature::BlockMask, options.blockSparse && !options.maskByBoxes && !isMask);
  features.set(Feature::BoxMask, options.maskByBoxes);
  features.set(Feature::F32, options.dtype == DType::F32 && !isMask);
  features.set(Feature::Gradients, !options.gradients.empty() && options.kind == KernelKind::Backward);
  return features.without(unreadBy(options.kind));
}

std::vector<std::string> choiceWords(const KernelOptions& options) {
  std::vector<std::string> words;
  const auto add = [&](auto value, const char* flag) {
    if (value) words.push_back(std::is_same_v<decltype(value), bool> ? flag : fmt::format("{} {}", flag, value));
  };
#define ATTNC_CHOICE(type, member, c_type, name, limit, flag, text) add(options.member, flag);
#include "attnc/choices.def"
  return words;
}

namespace plan {

KernelOptions completed(KernelOptions options) {
  if (options.headDimV == 0) options.headDimV = options.headDim;
  if (options.kind == KernelKind::BlockMask) options.family = Family::Auto; // there is only one
  options.features = options.features.without(unreadBy(options.kind));
  return options;
}

Status checkRaggedOptions(const KernelOptions& options) {
  if (!options.features.has(Feature::Ragged)) return {};
  if (options.maskByBoxes)
    return Error::environment("a ragged batch takes no lists of boxes",
                              "give lists of blocks of tokens in a row, or none: its kernels then evaluate mask_mod");
  if (options.features.has(Feature::Lengths) && options.kind == KernelKind::Backward)
    return Error::environment("backward kernels take no KV lengths in a ragged batch",
                              "cu_seqlens_kv says the lengths");
  if (options.features.has(Feature::Appends) && !options.pageSize)
    return Error::environment("a ragged batch appends rows only to pages", "k and v one behind the other have no room");
  return {};
}

Status checkSequenceOptions(const KernelOptions& options) {
  if (options.pageSize && std::find(kPageSizes.begin(), kPageSizes.end(), options.pageSize) == kPageSizes.end())
    return Error::environment(fmt::format("pages of {} rows are not supported", options.pageSize),
                              fmt::format("{} are", fmt::join(kPageSizes, ", ")));
  for (auto [what, isAsked] : {std::pair("pages need", options.pageSize != 0),
                               {"rows that are appended need", options.features.has(Feature::Appends)}})
    if (isAsked && !options.features.has(Feature::Lengths))
      return Error::environment(fmt::format("{} KV lengths of sequences, and none are given", what),
                                "give kv_lengths, which count the new rows (Feature::Lengths)");
  return checkRaggedOptions(options);
}

} // namespace plan
} // namespace attnc
