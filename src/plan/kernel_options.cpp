#include "plan/kernel_options.h"

#include "attnc/operands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace attnc {

Features featuresOf(const KernelOptions& options) {
  Features features;
  features.set(Feature::Lengths, options.lengths);
  features.set(Feature::Offsets, options.offsets != QueryOffsets::None);
  features.set(Feature::Pages, options.pageSize != 0);
  features.set(Feature::Appends, options.appends);
  features.set(Feature::Ragged, options.ragged);
  features.set(Feature::Fp8Kv, options.fp8Kv && options.kind != KernelKind::BlockMask);
  features.set(Feature::BlockMask,
               options.blockSparse && !options.maskByBoxes && options.kind != KernelKind::BlockMask);
  features.set(Feature::BoxMask, options.maskByBoxes);
  features.set(Feature::F32, options.dtype == DType::F32 && options.kind != KernelKind::BlockMask);
  if (options.kind == KernelKind::Backward) {
    features.set(Feature::Gradients, !options.gradients.empty());
    features.set(Feature::Deterministic, options.deterministic);
  } else if (options.kind != KernelKind::BlockMask) {
    features.set(Feature::RowMax, options.rowMax);
  }
  return features;
}

namespace plan {

KernelOptions completed(KernelOptions options) {
  if (options.headDimV == 0) options.headDimV = options.headDim;
  if (options.kind == KernelKind::BlockMask) options.family = Family::Auto; // there is only one
  return options;
}

Status checkRaggedOptions(const KernelOptions& options) {
  if (!options.ragged) return {};
  if (options.blockSparse)
    return Error::environment("a ragged batch takes no block mask",
                              "its kernels evaluate mask_mod, or walk its bounds");
  for (auto [what, isAsked] : {std::pair("takes no pages", options.pageSize != 0),
                               {"appends no rows", options.appends},
                               {"takes no k and v of e4m3", options.fp8Kv}})
    if (isAsked)
      return Error::environment(fmt::format("a ragged batch {}", what), "sequences of equal Q_LEN with KV lengths do");
  return {};
}

Status checkSequenceOptions(const KernelOptions& options) {
  if (options.kind == KernelKind::Backward && options.offsets != QueryOffsets::None && !options.ragged)
    return Error::environment("backward kernels take offsets of queries only with a ragged batch",
                              "forward and decode kernels take them");
  if (options.pageSize && std::find(kPageSizes.begin(), kPageSizes.end(), options.pageSize) == kPageSizes.end())
    return Error::environment(fmt::format("pages of {} rows are not supported", options.pageSize),
                              fmt::format("{} are", fmt::join(kPageSizes, ", ")));
  for (auto [what, isAsked] :
       {std::pair("pages need", options.pageSize != 0), {"rows that are appended need", options.appends}})
    if (isAsked && !options.lengths)
      return Error::environment(fmt::format("{} KV lengths of sequences, and none are given", what),
                                "set KernelOptions::lengths");
  return checkRaggedOptions(options);
}

} // namespace plan
} // namespace attnc
