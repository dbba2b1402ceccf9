#include "analysis/position_slices.h"

#include "analysis/ir_names.h"
#include "ir/ir.h"
#include "ir/walk.h"

#include <llvm/ADT/STLExtras.h>

#include <tuple>

namespace attnc::analysis {

std::optional<TokenCount> times(const TokenCount& a, const TokenCount& b) {
  if (a.constant * b.constant > ir::kMaxExtent) return std::nullopt;
  TokenCount result{a.constant * b.constant, a.factors};
  result.factors.append(b.factors.begin(), b.factors.end());
  llvm::sort(result.factors);
  return result;
}

std::optional<TokenCount> over(const TokenCount& a, const TokenCount& b) {
  if (a.constant % b.constant != 0) return std::nullopt;
  TokenCount result{a.constant / b.constant, a.factors};
  for (uint32_t factor : b.factors) {
    const auto found = llvm::find(result.factors, factor);
    if (found == result.factors.end()) return std::nullopt;
    result.factors.erase(found);
  }
  return result;
}

TokenPlace behind(TokenPlace place, const TokenCount& count) {
  if (count.isConstant()) {
    place.constant += count.constant;
    return place;
  }
  const auto order = [](const TokenCount& a, const TokenCount& b) {
    return std::tie(a.factors, a.constant) < std::tie(b.factors, b.constant);
  };
  place.counts.insert(llvm::upper_bound(place.counts, count, order), count);
  return place;
}

/// Returns b - a; nullopt if a has counts that b has not.
static std::optional<TokenPlace> difference(const TokenPlace& b, const TokenPlace& a) {
  TokenPlace result = b;
  result.constant -= a.constant;
  for (const TokenCount& count : a.counts) {
    const auto found = llvm::find(result.counts, count);
    if (found == result.counts.end()) return std::nullopt;
    result.counts.erase(found);
  }
  return result;
}

std::optional<TokenCount> countBetween(const TokenPlace& from, const TokenPlace& to) {
  const std::optional<TokenPlace> tokens = difference(to, from);
  if (!tokens) return std::nullopt;
  if (tokens->counts.empty() && tokens->constant >= 1 && tokens->constant <= ir::kMaxExtent)
    return TokenCount{tokens->constant};
  return tokens->counts.size() == 1 && tokens->constant == 0 ? std::optional(tokens->counts[0]) : std::nullopt;
}

bool isAtMost(const TokenPlace& a, const TokenPlace& b) {
  const std::optional<TokenPlace> tokens = difference(b, a);
  return tokens && tokens->counts.empty() && tokens->constant >= 0;
}

PositionSlices::PositionSlices(const ir::Module& module)
    : module(module), needed(ir::neededByOutputs(module)), counts(module.size()), places(module.size()),
      slices(module.size()), isMultiple(module.size(), false) {
  for (uint32_t id = 0; id < module.size(); ++id) {
    if (!needed[id]) continue;
    counts[id] = countOf({id});
    places[id] = placeOf({id});
    slices[id] = sliceOf({id});
    if (std::optional<PositionBound> found = boundOf({id})) bounds.try_emplace(id, *std::move(found));
  }
  collectEnds();
}

const PositionBound* PositionSlices::bound(Value value) const {
  const auto found = bounds.find(value.id);
  return found == bounds.end() ? nullptr : &found->second;
}

/// Whether the node is an integer that a cast from another width leaves as it is: positions and counts of tokens fit
/// into either.
static bool isWidth(const ir::Module& module, const Node& node) {
  return node.op == Op::Cast && ir::isInt(node.type) && ir::isInt(module[node.operands[0]].type);
}

/// Returns the value without casts of its width.
static Value bare(const ir::Module& module, Value value) {
  while (isWidth(module, module[value])) value = module[value].operands[0];
  return value;
}

constexpr size_t kMostTerms = 8; // factors of a count, or counts of a sum: more than any grid has

std::optional<TokenCount> PositionSlices::countOf(Value value) const {
  const Node& node = module[value];
  if (!ir::isInt(node.type)) return std::nullopt;
  if (isWidth(module, node)) return counts[node.operands[0].id];
  if (module.isConst(value)) {
    if (module.integer(value) < 1 || module.integer(value) > ir::kMaxExtent) return std::nullopt;
    return TokenCount{module.integer(value)};
  }
  if (node.op == Op::Scalar || node.op == Op::Dim) return TokenCount{1, {value.id}};
  if (node.op != Op::Mul) return std::nullopt;
  const std::optional<TokenCount>&a = counts[node.operands[0].id], &b = counts[node.operands[1].id];
  if (!a || !b || a->factors.size() + b->factors.size() > kMostTerms) return std::nullopt;
  return times(*a, *b);
}

/// Returns the place if the value is a sum of constants and counts.
std::optional<TokenPlace> PositionSlices::placeOf(Value value) const {
  const Node& node = module[value];
  if (!ir::isInt(node.type)) return std::nullopt;
  if (isWidth(module, node)) return places[node.operands[0].id];
  if (module.isConst(value)) return TokenPlace{module.integer(value)};
  if (counts[value.id]) return behind({}, *counts[value.id]);
  if (node.op != Op::Add) return std::nullopt;
  const std::optional<TokenPlace>& a = places[node.operands[0].id];
  std::optional<TokenPlace> sum = places[node.operands[1].id];
  if (!a || !sum || a->counts.size() + sum->counts.size() > kMostTerms) return std::nullopt;
  sum->constant += a->constant;
  for (const TokenCount& count : a->counts) sum = behind(*std::move(sum), count);
  return sum;
}

/// Recognizes position - place (position + -13 for a constant). A grid must be able to begin at the place.
std::optional<PositionSlice> PositionSlices::distanceOf(const Node& node, Value value) const {
  if (!ir::isInt(node.type) || (node.op != Op::Sub && node.op != Op::Add)) return std::nullopt;
  const std::optional<PositionSlice>& from = slices[node.operands[0].id];
  if (!from || !from->isWhole() || !(from->before == TokenPlace())) return std::nullopt;
  std::optional<TokenPlace> place = places[node.operands[1].id];
  if (!place || (node.op == Op::Add && !place->counts.empty())) return std::nullopt;
  if (node.op == Op::Add) place->constant = -place->constant;
  const std::optional<TokenCount> count = countBetween({}, *place);
  if (!count || !(count->isConstant() || (count->constant == 1 && count->factors.size() == 1))) return std::nullopt;
  return PositionSlice{from->of, *std::move(place), {}, {}, value, {}};
}

/// Returns the divisor of x - x // divisor * divisor. Marks the product, so that its quotient does not become an end.
std::optional<TokenCount> PositionSlices::divisorOfRest(const Node& node) {
  if (node.op != Op::Sub) return std::nullopt;
  const Value product = bare(module, node.operands[1]);
  const Node& multiple = module[product];
  if (multiple.op != Op::Mul) return std::nullopt;
  for (unsigned i : {0u, 1u}) {
    const Node& quotient = module[bare(module, multiple.operands[i])];
    if (quotient.op != Op::FloorDiv || bare(module, quotient.operands[0]) != bare(module, node.operands[0])) continue;
    const std::optional<TokenCount>&a = counts[quotient.operands[1].id], &b = counts[multiple.operands[1 - i].id];
    if (!a || !b || !(*a == *b)) continue;
    for (Value of = node.operands[1]; of != product; of = module[of].operands[0]) isMultiple[of.id] = true;
    isMultiple[product.id] = true;
    return a;
  }
  return std::nullopt;
}

std::optional<PositionSlice> PositionSlices::sliceOf(Value value) {
  const Node& node = module[value];
  if (module.isParam(value, ParamKind::QIdx) || module.isParam(value, ParamKind::KvIdx))
    return PositionSlice{ParamKind(node.attr), {}, {}, {}, value, {}};
  if (isWidth(module, node)) return slices[node.operands[0].id];
  if (std::optional<PositionSlice> distance = distanceOf(node, value)) return distance;
  const bool isSubtraction = node.op == Op::Sub, isQuotient = node.op == Op::FloorDiv;
  if (!ir::isInt(node.type) || !(isSubtraction || isQuotient || node.op == Op::Mod) || !slices[node.operands[0].id])
    return std::nullopt;
  PositionSlice slice = *slices[node.operands[0].id];
  const std::optional<TokenCount> divisor = isSubtraction ? divisorOfRest(node) : counts[node.operands[1].id];
  const std::optional<TokenCount> cut = divisor ? times(slice.lo, *divisor) : std::nullopt;
  if (!cut || (slice.hi && !divides(*cut, *slice.hi))) return std::nullopt;
  slice.operand = node.operands[0];
  slice.asked.push_back(*divisor);
  if (!isQuotient)
    slice.hi = cut;
  else if (slice.hi == cut) // the quotient is 0
    return std::nullopt;
  else
    slice.lo = *cut;
  return slice;
}

std::optional<PositionBound> PositionSlices::boundOf(Value value) const {
  const Node& node = module[value];
  if (node.op != Op::Lt && node.op != Op::Le) return std::nullopt;
  for (unsigned i : {0u, 1u}) {
    const std::optional<PositionSlice>& slice = slices[node.operands[i].id];
    if (!slice || !slice->isWhole()) continue;
    std::optional<TokenPlace> place = places[node.operands[1 - i].id];
    if (!place) return std::nullopt;
    const bool isBelow = i == 0, isOneMore = isBelow == (node.op == Op::Le);
    place->constant += slice->before.constant + isOneMore;
    for (const TokenCount& count : slice->before.counts) place = behind(*std::move(place), count);
    return PositionBound{slice->of, *std::move(place), isBelow};
  }
  return std::nullopt;
}

/// Whether the product is only used in remainders, x - x // w * w.
bool PositionSlices::isRestAlone(Value product) const {
  if (!isMultiple[product.id]) return false;
  for (uint32_t id = product.id + 1; id < module.size(); ++id)
    if (needed[id] && llvm::is_contained(module[{id}].operands, product) && !slices[id] && !isMultiple[id])
      return false;
  return true;
}

void PositionSlices::collectEnds() {
  std::vector<bool> isEnd(module.size(), false);
  for (const ir::Output& output : module.outputs()) isEnd[output.value.id] = true;
  for (uint32_t id = 0; id < module.size(); ++id) {
    if (!needed[id] || slices[id] || isRestAlone({id})) continue;
    for (Value operand : module[{id}].operands) isEnd[operand.id] = true;
  }
  for (uint32_t id = 0; id < module.size(); ++id)
    if (isEnd[id] && slices[id] && !slices[id]->isWhole()) allEnds.push_back({id});
}

} // namespace attnc::analysis
