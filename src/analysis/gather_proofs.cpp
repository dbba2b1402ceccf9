// Proofs come from the interval analysis. For unproven indices it searches counter-examples, with the work divided
// among the distinct indices.
#include "analysis/gather_proofs.h"

#include "analysis/example_search.h"
#include "analysis/ir_names.h"
#include "ir/printer.h"
#include "ir/walk.h"

#include <fmt/format.h>
#include <llvm/ADT/StringExtras.h>

#include <map>
#include <tuple>

namespace attnc::analysis {
namespace {

/// Returns an index as users know it: its own name, or "index".
std::string nameOf(const ir::OperandNames& names, Value index) {
  const std::string text = names.of(index); // "%kv_idx", "%i0:64" (a loop's index), "%7", or a number
  if (text[0] != '%') return text;
  return llvm::isDigit(text[1]) ? "index" : text.substr(1, text.find(':') - 1);
}

/// Returns the bounds in the extent's terms: a number next to a number, or a form that names the extent next to its
/// name. An index that never varies has no range.
std::string boundsText(const ir::Module& module, const ir::OperandNames& names, Value index, const Bounds& bounds,
                       const ir::Extent& extent) {
  if (bounds.range.lo == bounds.range.hi) return fmt::format("always {}", bounds.range.lo);
  std::string upper = fmt::format("{}", bounds.range.hi);
  for (const LinearForm& form : bounds.upper)
    for (const LinearForm::Term& term : form.terms)
      if (extent.isNamed && int64_t(term.dim) == extent.value) upper = toString(form, module);
  return fmt::format("{} <= {} <= {}", bounds.range.lo, nameOf(names, index), upper);
}

/// Returns "inside if Q_LEN <= KV_LEN" for an index of a tensor of KV_LEN that is at least 0 and less than Q_LEN, else
/// "".
std::string insideIf(const ir::Module& module, const Bounds& bounds, const ir::Extent& extent) {
  const unsigned q = unsigned(*ir::extentOf(ir::ParamKind::QIdx)), kv = unsigned(*ir::extentOf(ir::ParamKind::KvIdx));
  if (!extent.isNamed || extent.value != int64_t(kv) || bounds.range.lo < 0) return "";
  for (const LinearForm& form : bounds.upper)
    if (form.terms.size() == 1 && form.terms[0] == LinearForm::Term{q, 1} && form.constant < 0)
      return fmt::format("inside if {} <= {}", module.dims[q], module.dims[kv]);
  return "";
}

} // namespace

std::vector<GatherProof> proveGathers(const ir::Module& module, const ir::Pins& pins, uint64_t* work) {
  std::vector<GatherProof> proofs;
  const std::vector<bool> needed = ir::neededByOutputs(module);
  Intervals intervals(module, pins);
  const ir::OperandNames names(module);
  // Findings for unproven indices, by value and extent, so that equal ones are searched once.
  std::map<std::tuple<uint32_t, bool, int64_t>, std::string> searched;
  auto keyOf = [](Value index, const ir::Extent& extent) { return std::tuple(index.id, extent.isNamed, extent.value); };
  for (uint32_t id = 0; id < module.size(); ++id) {
    if (!needed[id] || module[{id}].op != Op::Load) continue;
    for (unsigned axis = 0; axis < module[{id}].operands.size(); ++axis) {
      Value index = module[{id}].operands[axis];
      const ir::Extent& extent = module.tensors[module[{id}].attr].shape[axis];
      proofs.push_back({{id}, axis, intervals.provesInside({id}, axis), ""});
      if (proofs.back().proven)
        proofs.back().why = boundsText(module, names, index, intervals.of(index), extent);
      else
        searched[keyOf(index, extent)];
    }
  }
  if (searched.empty()) return proofs;
  ExampleSearch search(module, pins);
  size_t left = searched.size();
  for (GatherProof& proof : proofs) {
    if (proof.proven) continue;
    Value index = module[proof.load].operands[proof.axis];
    const ir::Extent& extent = module.tensors[module[proof.load].attr].shape[proof.axis];
    std::string& why = searched[keyOf(index, extent)];
    if (why.empty()) why = insideIf(module, intervals.of(index), extent);
    if (why.empty()) why = search.run(index, extent, (kMaxExampleWork - search.work()) / left--);
    proof.why = why;
  }
  if (work) *work = search.work();
  return proofs;
}

} // namespace attnc::analysis
