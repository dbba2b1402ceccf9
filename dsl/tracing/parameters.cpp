#include "dsl/tracing/parameters.h"

#include "dsl/builtins/builtins.h"

#include <llvm/ADT/StringSet.h>

namespace attnc::dsl {

std::optional<size_t> requiredArguments(Object callable) {
  size_t given = 0;
  llvm::StringSet<> named;
  while (callable.is<const Partial*>()) {
    given += callable.as<const Partial*>()->arguments.size();
    for (auto& [name, value] : callable.as<const Partial*>()->keywords) named.insert(name);
    callable = callable.as<const Partial*>()->callee;
  }
  if (callable.is<const ModList*>()) {
    const ModList& list = *callable.as<const ModList*>();
    const size_t of = list.which ? requiredArguments(list.mods[0]).value_or(0) : 4;
    return of - std::min(given, of);
  }
  if (callable.is<const Builtin*>() && (callable.as<const Builtin*>()->where & kFlex)) {
    const llvm::StringRef name = callable.as<const Builtin*>()->name;
    if (name == "noop_mask" || name == "_identity") return (name == "_identity" ? 5 : 4) - given;
  }
  if (callable.is<const Builtin*>() && (callable.as<const Builtin*>()->where & kGym))
    if (llvm::StringRef(callable.as<const Builtin*>()->name) == "causal_mask") return 4 - given;
  if (callable.is<Instance*>()) {
    const Object* method = findMember(*callable.as<Instance*>()->type, "__call__");
    if (!method) method = findMember(*callable.as<Instance*>()->type, "forward");
    if (!method) return std::nullopt;
    callable = *method;
    ++given; // self
  }
  if (!callable.is<const Function*>()) return std::nullopt;
  size_t required = 0;
  for (const Parameter& parameter : callable.as<const Function*>()->node->parameters)
    required +=
        parameter.kind == ParameterKind::Positional && !parameter.defaultValue && !named.contains(parameter.name);
  return required - std::min(given, required);
}

bool hasModNames(Object callable) {
  while (callable.is<const Partial*>()) callable = callable.as<const Partial*>()->callee;
  if (!callable.is<const Function*>()) return true;
  llvm::SmallVector<llvm::StringRef, 6> names;
  for (const Parameter& parameter : callable.as<const Function*>()->node->parameters)
    if (parameter.kind == ParameterKind::Positional && !parameter.defaultValue) names.push_back(parameter.name);
  if (names.size() < 4) return false;
  llvm::StringRef row = names[names.size() - 2].ltrim('_'), column = names.back().ltrim('_');
  return row.take_front(1) == "q" && (column.take_front(1) == "k" || column.contains("kv"));
}

llvm::StringRef firstParameter(Object callable) {
  size_t given = 0;
  while (callable.is<const Partial*>()) {
    given += callable.as<const Partial*>()->arguments.size();
    callable = callable.as<const Partial*>()->callee;
  }
  if (callable.is<const ModList*>() && callable.as<const ModList*>()->which)
    return firstParameter(callable.as<const ModList*>()->mods[0]);
  if (!callable.is<const Function*>()) return "";
  const llvm::ArrayRef<Parameter> parameters = callable.as<const Function*>()->node->parameters;
  return given < parameters.size() ? parameters[given].name : "";
}

llvm::StringRef lastParameter(Object callable) {
  while (callable.is<const Partial*>()) callable = callable.as<const Partial*>()->callee;
  if (!callable.is<const Function*>()) return "";
  llvm::StringRef last;
  for (const Parameter& parameter : callable.as<const Function*>()->node->parameters)
    if (parameter.kind == ParameterKind::Positional && !parameter.defaultValue) last = parameter.name;
  return last;
}

size_t mostArguments(Object callable) {
  if (!callable.is<const Function*>()) return SIZE_MAX;
  size_t most = 0;
  for (const Parameter& parameter : callable.as<const Function*>()->node->parameters) {
    if (parameter.kind == ParameterKind::Variadic) return SIZE_MAX;
    most += parameter.kind == ParameterKind::Positional;
  }
  return most;
}

} // namespace attnc::dsl
