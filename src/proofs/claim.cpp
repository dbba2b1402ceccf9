#include "proofs/claim.h"

#include "ir/outputs.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

namespace attnc::proofs {

using ir::Import;
using ir::Module;
using ir::Op;
using ir::ParamKind;
using ir::Type;
using ir::Value;

namespace {

Value maskOf(Module& to, Import& import, const Module& from, std::optional<Value> column = {}) {
  const std::optional<Value> mask = from.output(ir::kMask);
  return mask ? import.copy(*mask, ParamKind::KvIdx, column) : to.constBool(true);
}

Value both(Module& module, Value a, Value b) { return module.make(Op::And, Type::Bool, {a, b}); }
Value either(Module& module, Value a, Value b) { return module.make(Op::Or, Type::Bool, {a, b}); }
Value inverse(Module& module, Value a) { return module.make(Op::Not, Type::Bool, {a}); }

/// Returns whether all assumptions hold.
Expected<Value> allOf(Module& module, llvm::ArrayRef<const Module*> assumptions) {
  Value all = module.constBool(true);
  for (const Module* assumption : assumptions) {
    ATTNC_TRY_AS(import, Import::into(module, *assumption));
    all = both(module, all, maskOf(module, *import, *assumption));
  }
  return all;
}

/// Copies conditions of the launch, so that examples meet them.
void addConditions(Module& module, Import& import, const Module& from, llvm::StringRef prefix) {
  for (const ir::Output& output : from.outputs())
    if (output.isCondition()) {
      ir::Output copy = output;
      copy.name = prefix.str() + output.name;
      copy.value = import.copy(output.value);
      module.setOutput(copy);
    }
}

/// What all claims begin with: the mask and the assumptions.
struct Begun {
  Module module;
  Value mask, live, assumed;   ///< live: the mask of elements before the length
  std::optional<Value> length; ///< of the sequence's keys, if it has its own

  static Expected<Begun> make(const Module& mask, llvm::ArrayRef<const Module*> assumptions) {
    Begun begun;
    begun.module.sourceName = mask.sourceName;
    ATTNC_TRY_AS(import, Import::into(begun.module, mask));
    for (const ir::OutputRole& role : {ir::kKvLength, ir::kQOffset})
      if (const auto value = mask.output(role)) begun.module.setOutput(role, import->copy(*value));
    begun.length = begun.module.output(ir::kKvLength);
    begun.mask = maskOf(begun.module, *import, mask);
    begun.live = begun.beforeLength(begun.mask, begun.module.param(ParamKind::KvIdx));
    addConditions(begun.module, *import, mask, "");
    ATTNC_TRY_AS(all, allOf(begun.module, assumptions));
    begun.assumed = both(begun.module, begun.isQueryAtKey(), *all);
    begun.module.setOutput(kLive, ir::kMask.params, begun.live);
    begun.module.setOutput(kAssumed, ir::kMask.params, begun.assumed);
    return begun;
  }

  /// Returns whether a column lives, which the mask is true for.
  Value beforeLength(Value mask, Value column) { return length ? both(module, mask, isBelow(column, *length)) : mask; }

  Value keys() { return length.value_or(module.dim(unsigned(ir::BuiltinDim::KvLen))); }

  /// Returns the module of the claim that this holds for elements before the length.
  Module ofElements(Value claim) && {
    if (length) claim = either(module, claim, inverse(module, isBelow(module.param(ParamKind::KvIdx), *length)));
    return std::move(*this).finished(claim);
  }

  /// Returns the module of the claim that this holds where the assumptions do.
  Module finished(Value claim) && {
    module.setOutput(ir::kMask, either(module, inverse(module, assumed), claim));
    return std::move(module);
  }

private:
  Value isBelow(Value a, Value b) { return module.make(Op::Lt, Type::Bool, {a, b}); }

  Value isQueryAtKey() {
    const Value hasKeys = length ? isBelow(module.constInt(Type::I32, 0), *length) : module.constBool(true);
    if (!module.offsetsQueries) return hasKeys;
    const Value q = module.param(ParamKind::QIdx), before = isBelow(q, module.constInt(Type::I32, 0));
    return both(module, hasKeys, both(module, inverse(module, before), isBelow(q, keys())));
  }
};

} // namespace

Expected<Module> claimOf(const Module& mask, const Module& property, bool never,
                         llvm::ArrayRef<const Module*> assumptions) {
  ATTNC_TRY_AS(begun, Begun::make(mask, assumptions));
  Module& module = begun->module;
  ATTNC_TRY_AS(import, Import::into(module, property));
  const Value holds = maskOf(module, *import, property);
  addConditions(module, *import, property, "property_");
  const Value claim = either(module, inverse(module, begun->mask), never ? inverse(module, holds) : holds);
  return (*std::move(begun)).ofElements(claim);
}

Expected<Module> claimOfNone(const Module& mask, bool rows, llvm::ArrayRef<const Module*> assumptions) {
  ATTNC_TRY_AS(begun, Begun::make(mask, assumptions));
  const Value dead = rows ? begun->module.constBool(false) : inverse(begun->module, begun->live);
  return (*std::move(begun)).finished(dead);
}

Expected<Module> claimOfSame(const Module& mask, const Module& other, bool scores,
                             llvm::ArrayRef<const Module*> assumptions) {
  ATTNC_TRY_AS(begun, Begun::make(mask, assumptions));
  Module& module = begun->module;
  ATTNC_TRY_AS(import, Import::into(module, other));
  Value claim = module.make(Op::Eq, Type::Bool, {begun->mask, maskOf(module, *import, other)});
  addConditions(module, *import, other, "other_");
  if (scores) {
    ATTNC_TRY_AS(ofMask, Import::into(module, mask));
    std::string name = "score"; // unless a capture has this name
    while (llvm::any_of(module.scalars, [&](const auto& known) { return known.name == name; }) ||
           llvm::any_of(module.tensors, [&](const auto& known) { return known.name == name; }))
      name += "_";
    module.scalars.push_back({name, Type::F32});
    const Value given = module.scalar(unsigned(module.scalars.size()) - 1);
    const auto scoreOf = [&](Import& from, const Module& its) {
      const std::optional<Value> score = its.output(ir::kScore);
      return score ? from.copy(*score, ParamKind::Score, given) : given;
    };
    const Value a = scoreOf(*ofMask, mask), b = scoreOf(*import, other);
    const auto isNaN = [&](Value x) { return module.make(Op::IsNan, Type::Bool, {x}); };
    const Value equal = either(module, module.make(Op::Eq, Type::Bool, {a, b}), both(module, isNaN(a), isNaN(b)));
    const bool areFactors = !mask.output(ir::kProbWeight) && !other.output(ir::kProbWeight);
    const auto factorOf = [&](Import& from, const Module& its) {
      if (const std::optional<Value> weight = its.output(ir::kProbWeight))
        return from.copy(*weight, ParamKind::Prob, given); // of any weight
      const std::optional<Value> found = its.output(ir::kProbFactor);
      const Value factor = found ? from.copy(*found) : module.constF32(1);
      return areFactors ? factor : module.make(Op::Mul, Type::F32, {given, factor});
    };
    const Value ofOne = factorOf(*ofMask, mask), ofOther = factorOf(*import, other);
    Value isSameFactor = module.make(Op::Eq, Type::Bool, {ofOne, ofOther});
    if (!areFactors) isSameFactor = either(module, isSameFactor, both(module, isNaN(ofOne), isNaN(ofOther)));
    claim = both(module, claim, either(module, inverse(module, begun->mask), both(module, equal, isSameFactor)));
    if (mask.output(ir::kIsWeight).has_value() != other.output(ir::kIsWeight).has_value())
      claim = both(module, claim, inverse(module, begun->mask));
    const auto sinkOf = [&](Import& from, const Module& its) {
      const std::optional<Value> sink = its.output(ir::kSink);
      return sink ? from.copy(*sink) : module.constF32(-std::numeric_limits<float>::infinity());
    };
    const Value mine = sinkOf(*ofMask, mask), its = sinkOf(*import, other);
    claim = both(module, claim,
                 either(module, module.make(Op::Eq, Type::Bool, {mine, its}), both(module, isNaN(mine), isNaN(its))));
  }
  return (*std::move(begun)).ofElements(claim);
}

Expected<Module> claimOfRows(const Module& mask, const Module* bounds, llvm::ArrayRef<const Module*> assumptions) {
  ATTNC_TRY_AS(begun, Begun::make(mask, assumptions));
  Module& module = begun->module;
  const auto i32 = [&](Op op, Value a, Value b) { return module.make(op, Type::I32, {a, b}); };
  const Value zero = module.constInt(Type::I32, 0), one = module.constInt(Type::I32, 1);
  const Value q = module.param(ParamKind::QIdx), qLen = module.dim(unsigned(ir::BuiltinDim::QLen)),
              keys = begun->keys(), last = i32(Op::Sub, keys, one);
  llvm::SmallVector<Value, 6> columns = {q, zero, last, i32(Op::Add, q, i32(Op::Sub, keys, qLen))};
  if (bounds) {
    ATTNC_TRY_AS(ofBounds, Import::into(module, *bounds));
    if (const auto begin = bounds->output(ir::kKvBegin)) columns.push_back(ofBounds->copy(*begin));
    if (const auto end = bounds->output(ir::kKvEnd)) columns.push_back(i32(Op::Sub, ofBounds->copy(*end), one));
  }
  ATTNC_TRY_AS(import, Import::into(module, mask));
  Value claim = module.constBool(false);
  for (Value column : columns) {
    const Value inside = i32(Op::Min, i32(Op::Max, column, zero), last);
    claim = either(module, claim, maskOf(module, *import, mask, inside));
  }
  return (*std::move(begun)).finished(claim);
}

Expected<Module> claimOfShortRows(const Module& mask, int64_t columns, llvm::ArrayRef<const Module*> assumptions) {
  ATTNC_TRY_AS(begun, Begun::make(mask, assumptions));
  Module& module = begun->module;
  ATTNC_TRY_AS(import, Import::into(module, mask));
  const Value kvLen = module.dim(unsigned(ir::BuiltinDim::KvLen));
  Value claim = module.make(Op::Ne, Type::Bool, {kvLen, module.constInt(Type::I32, columns)});
  for (int64_t column = 0; column < columns; ++column) {
    const Value at = module.constInt(Type::I32, column);
    claim = either(module, claim, begun->beforeLength(maskOf(module, *import, mask, at), at));
  }
  return (*std::move(begun)).finished(claim);
}

} // namespace attnc::proofs
