// Which mods of the library tests use, and what they may expect.
#pragma once

#include <set>
#include <string>

namespace attnc::test {

/// Whether a mod goes through all tests. These mods need different things of kernels: terms by row, column, distance
/// and element, factors, masks with and without bounds, captured tensors, sums. All others are of the same kinds, and
/// go through each kind of kernel once.
inline bool goesEverywhere(const std::string& mod) {
  static const std::set<std::string> names{
      "alibi", "causal",    "document",      "global_local",   "latent_rope", "learned_bias",  "neighborhood2d",
      "noop",  "prefix_lm", "relative_bias", "sliding_window", "softcap",     "softcap_approx"};
  return names.count(mod) > 0;
}

/// Whether the mask is read from captured tensors, which may mask everything if random.
inline bool mayMaskAll(const std::string& mod) { return mod == "tree" || mod == "top_k_blocks"; }

} // namespace attnc::test
