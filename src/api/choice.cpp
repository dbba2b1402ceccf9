// Mod::choice(): mods joined to one, which chooses by the sequence.
//
// In: mods, and the declaration of a captured tensor. Out: their IR in one module, with a chain of selects over the
// tensor's element, as users write it.
#include "api/mod_impl.h"
#include "api/own_stack.h"
#include "dsl/frontend.h"
#include "ir/import.h"
#include "ir/reductions.h"
#include "passes/pipeline.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include <limits>

namespace attnc {
namespace {

using ir::Op;
using ir::ParamKind;
using ir::Value;

/// Returns the module that declares `which`, and masks sequences that name none of `count` mods.
Expected<ir::Module> chosenOf(std::string_view which, size_t count) {
  const llvm::StringRef name = llvm::StringRef(which).split(':').first.trim();
  std::string masks;
  for (size_t i = 0; i < count; ++i) masks += ", noop_mask";
  return dsl::trace(fmt::format("{}\nmask_mod = choice({}{})", which, name.str(), masks), {.name = "<which>"});
}

/// An output of all mods.
struct Joined {
  const ir::OutputRole& role;
  std::vector<Value> of; ///< by mod
  bool isNone = true;    ///< whether no mod has it
};

Expected<ir::Module> join(const std::vector<Mod>& mods, std::string_view which) {
  ATTNC_TRY_AS(module, chosenOf(which, mods.size()));
  const Value chosen = *module->output(ir::kMask);
  const Value taken = module->make(Op::Load, ir::loadedType(module->tensors[0].dtype), {module->param(ParamKind::B)});
  Joined joined[] = {{ir::kScore, {}}, {ir::kMask, {}}, {ir::kProbFactor, {}}, {ir::kSink, {}}};
  const Value otherwise[] = {module->param(ParamKind::Score), module->constBool(true), module->constF32(1),
                             module->constF32(-std::numeric_limits<float>::infinity())};
  size_t conditions = 0;
  std::string names;
  for (const Mod& mod : mods) {
    const ir::Module& from = tracedModule(mod);
    names += (names.empty() ? "" : ", ") + from.sourceName;
    if (mod.hasWeightMod())
      return Error::environment(
          fmt::format("choice: {} has a weight_mod, and a launch has a softmax or none", mod.name()),
          "choose between mods without one");
    if (mod.walksTwice())
      return Error::environment(fmt::format("choice: {} has a prob_mod that is no multiple of prob", mod.name()),
                                "choose in one text: `prob_mod = choice(which, f, g)`");
    if (!ir::reductionsOf(from).empty())
      return Error::environment(fmt::format("choice: {} has outputs", mod.name()),
                                "choose between mods without outputs");
    auto import = ir::Import::into(*module, from);
    if (!import)
      return Error::environment(fmt::format("choice: {}", import.error().message),
                                "rename it in one of the mods: equal names are one capture");
    for (size_t i = 0; i < std::size(joined); ++i) {
      const std::optional<Value> value = from.output(joined[i].role);
      joined[i].of.push_back(value ? import->copy(*value) : otherwise[i]);
      joined[i].isNone &= !value;
    }
    for (ir::Output output : from.outputs()) {
      if (!output.isCondition()) continue;
      output.name = fmt::format("condition_{:02}", conditions++);
      output.value = import->copy(output.value);
      module->setOutput(std::move(output));
    }
  }
  for (const Joined& one : joined) {
    if (one.isNone) continue;
    Value value = one.of.back();
    for (size_t i = one.of.size() - 1; i-- > 0;) {
      const Value isTaken =
          module->make(Op::Eq, ir::Type::Bool, {taken, module->constInt((*module)[taken].type, int64_t(i))});
      value = module->make(Op::Select, one.role.type, {isTaken, one.of[i], value});
    }
    if (&one.role == &ir::kMask) value = module->make(Op::And, ir::Type::Bool, {value, chosen});
    module->setOutput(one.role, value);
  }
  module->sourceName = fmt::format("choice({})", names);
  return module;
}

} // namespace

Expected<Mod> Mod::choice(const std::vector<Mod>& mods, std::string_view which) {
  if (mods.empty()) return Error::environment("choice: no mods are given", "give at least one");
  return onOwnStack([&]() -> Expected<Mod> {
    ATTNC_TRY_AS(traced, join(mods, which));
    ir::Module module = *traced;
    ATTNC_TRY(passes::runPipeline(module));
    return Mod(std::make_shared<const Impl>(std::move(module), *std::move(traced), ModSource{}));
  });
}

} // namespace attnc
