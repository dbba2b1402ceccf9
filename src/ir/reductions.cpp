#include "ir/reductions.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include <tuple>

namespace attnc::ir {
namespace {

constexpr std::tuple<llvm::StringLiteral, Kept, std::string_view> kKinds[] = {
    {"kv_", Kept::Keys, "KV_LEN"}, {"q_", Kept::Queries, "Q_LEN"}, {"h_", Kept::Heads, ""}};

} // namespace

std::string Reduction::output() const {
  return (isMax ? "reduce_max_" : "reduce_sum_") + std::get<0>(kKinds[size_t(kept)]).str() + name;
}

std::optional<Reduction> reductionOf(const Output& output) {
  llvm::StringRef rest = output.name;
  const bool isMax = rest.consume_front("reduce_max_");
  if (!isMax && !rest.consume_front("reduce_sum_")) return std::nullopt;
  for (const auto& [prefix, kept, axis] : kKinds)
    if (rest.consume_front(prefix)) return Reduction{rest.str(), isMax, kept};
  return std::nullopt;
}

std::vector<Reduction> reductionsOf(const Module& module) {
  std::vector<Reduction> all;
  for (const Output& output : module.outputs())
    if (auto reduction = reductionOf(output)) {
      reduction->isRowMax = reduction->isMax && reduction->kept != Kept::Keys && isScore(module, output.value);
      all.push_back(*std::move(reduction));
    }
  return all;
}

Expected<bool> haveGradients(const Module& module, const Captures* captures) {
  bool have = false;
  const auto isOwn = [&](const std::string& name) { // a capture that the mod reads
    const auto hasName = [&](const auto& capture) { return capture.name == name; };
    return llvm::any_of(module.tensors, hasName) || llvm::any_of(module.scalars, hasName);
  };
  for (const Reduction& each : reductionsOf(module)) {
    if (!captures || isOwn(each.gradient()) || !captures->find(each.gradient())) continue;
    if (each.isMax)
      return Error::environment(
          fmt::format("{} is given, and {} is a maximum, which has no gradient", each.gradient(), each.name),
          "give gradients of sums");
    have = true;
  }
  return have;
}

void dropReductions(Module& module) {
  std::vector<std::string> names;
  for (const Reduction& reduction : reductionsOf(module)) names.push_back(reduction.output());
  module.dropOutputs(names);
}

std::string_view axisOf(Kept kept) { return std::get<2>(kKinds[size_t(kept)]); }

} // namespace attnc::ir
