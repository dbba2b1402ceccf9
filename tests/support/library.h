// Which mods of the library tests go through, and what they may expect.
#pragma once

#include <set>
#include <string>

namespace attnc::test {

/// Mods that ask different things of kernels: terms by row, column, distance and element, factors, masks with bounds
/// and without, captured tensors, sums. All others are of these kinds, and go through each kind of kernel once.
inline bool goesEverywhere(const std::string& mod) {
  static const std::set<std::string> names{
      "alibi", "causal",    "document",      "global_local",   "latent_rope", "learned_bias",  "neighborhood2d",
      "noop",  "prefix_lm", "relative_bias", "sliding_window", "softcap",     "softcap_approx"};
  return names.count(mod) > 0;
}

/// Whose mask is what captured tensors say, of which random ones may let nothing live.
inline bool mayMaskAll(const std::string& mod) { return mod == "tree" || mod == "top_k_blocks"; }

} // namespace attnc::test
