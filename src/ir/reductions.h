// Outputs of a mod: reductions of a value over the live scores of an attention. In a module, each is an output whose
// name says what is reduced to what: reduce_sum_kv_NAME is the sum NAME: f32[B, H, KV_LEN].
#pragma once

#include "attnc/captures.h"
#include "attnc/error.h"
#include "ir/ir.h"

#include <string>
#include <string_view>
#include <vector>

namespace attnc::ir {

/// What a reduction keeps besides B and H: KV_LEN, Q_LEN, or neither.
enum class Kept : uint8_t { Keys, Queries, Heads };

struct Reduction {
  std::string name; ///< as the mod declares it
  bool isMax = false;
  Kept kept = Kept::Heads;
  bool isRowMax = false; ///< whether it is the largest score of rows or heads, which forward kernels know
  /// Returns the name of its output.
  std::string output() const;
  /// Returns the name of the capture that holds its gradient (passes/output_gradients.h).
  std::string gradient() const { return name + "_gradient"; }
  friend bool operator==(const Reduction&, const Reduction&) = default;
};

/// Most outputs of a mod.
constexpr size_t kMaxReductions = 8;

/// The parameters of their values. `score` is what score_mod returns, `prob` the weight before prob_mod.
inline constexpr ParamSet kReductionParams = {ParamKind::Score, ParamKind::B,     ParamKind::H,
                                              ParamKind::QIdx,  ParamKind::KvIdx, ParamKind::Prob};

/// Returns what an output reduces. nullopt: it is none of these.
std::optional<Reduction> reductionOf(const Output& output);
/// Returns the reductions of a module, in the order of its outputs.
std::vector<Reduction> reductionsOf(const Module& module);
/// Returns whether captures hold gradients of them. What the mod itself captures under that name is none. Error
/// (environment): of a maximum.
Expected<bool> haveGradients(const Module& module, const Captures* captures);
/// Removes them.
void dropReductions(Module& module);

/// Returns "KV_LEN", "Q_LEN", or an empty name.
std::string_view axisOf(Kept kept);

} // namespace attnc::ir
