#include "dsl/tracing/given_mods.h"

#include "dsl/builtins/builtins.h"

#include <llvm/ADT/STLExtras.h>

namespace attnc::dsl {

using llvm::cast;
using llvm::dyn_cast;

bool isSameFunction(Object a, Object b) {
  if (a.storage.index() != b.storage.index()) return false;
  if (a.is<NoneObject>()) return true;
  if (a.is<const ModList*>()) {
    const ModList &one = *a.as<const ModList*>(), &other = *b.as<const ModList*>();
    const auto tensorOf = [](const ModList& list) { return list.which ? int64_t(list.which->number) : -1; };
    return llvm::StringRef(one.name) == other.name && tensorOf(one) == tensorOf(other) &&
           std::equal(one.mods.begin(), one.mods.end(), other.mods.begin(), other.mods.end(), isSameFunction);
  }
  if (a.is<const Function*>()) {
    const Function &one = *a.as<const Function*>(), &other = *b.as<const Function*>();
    return &one == &other || (one.node == other.node && one.closure == other.closure);
  }
  if (a.is<const Partial*>()) return a.as<const Partial*>() == b.as<const Partial*>();
  if (a.is<Instance*>()) return a.as<Instance*>() == b.as<Instance*>();
  if (a.is<const Builtin*>()) return a.as<const Builtin*>() == b.as<const Builtin*>();
  if (a.is<const Deferred*>()) return a.as<const Deferred*>()->at.begin == b.as<const Deferred*>()->at.begin;
  return false;
}

namespace {

/// Names of the two functions, and of functions that call them. A statement that mentions one adds its own names.
class Callers {
public:
  Callers(const Ast& ast, llvm::StringRef text) {
    for (size_t i = 0; i < ast.body.size(); ++i) {
      const uint32_t begin = ast.body[i]->loc.begin,
                     end = i + 1 < ast.body.size() ? ast.body[i + 1]->loc.begin : uint32_t(text.size());
      slices[ast.body[i]] = text.slice(begin, end);
    }
    for (bool grows = true; grows;) {
      const size_t before = names.size();
      for (const Stmt* stmt : ast.body)
        if (mentions(*stmt)) addBound(*stmt);
      grows = names.size() != before;
    }
  }

  bool mentions(const Stmt& stmt) const {
    const llvm::StringRef slice = slices.lookup(&stmt);
    return llvm::any_of(names, [&](const std::string& name) { return slice.contains(name); });
  }

private:
  void addBound(const Stmt& stmt) {
    if (const auto* import = dyn_cast<ImportStmt>(&stmt))
      for (const ImportedName& one : import->names)
        if (!one.as.empty() && llvm::is_contained(names, one.name)) names.insert(one.as.str());
    if (const auto* assign = dyn_cast<AssignStmt>(&stmt))
      for (const Expr* target : assign->targets)
        if (const auto* name = dyn_cast<NameExpr>(target)) names.insert(name->name.str());
    if (const auto* def = dyn_cast<DefStmt>(&stmt)) names.insert(def->function->name.str());
    if (const auto* type = dyn_cast<ClassStmt>(&stmt)) names.insert(type->function->name.str());
  }

  llvm::DenseMap<const Stmt*, llvm::StringRef> slices;
  std::set<std::string> names{"create_block_mask", "flex_attention"};
};

/// Returns `if __name__ == ...:`, the part of a script that runs unless it is imported; null for other statements.
const IfStmt* mainPart(const Stmt& stmt) {
  const auto* choice = dyn_cast<IfStmt>(&stmt);
  if (!choice || choice->clauses.size() != 1) return nullptr;
  const auto* test = dyn_cast<CompareExpr>(choice->clauses[0].first);
  const auto* name = test ? dyn_cast<NameExpr>(test->first) : nullptr;
  return name && name->name == "__name__" ? choice : nullptr;
}

bool isCompound(const Stmt& stmt) {
  return stmt.kind == StmtKind::If || stmt.kind == StmtKind::For || stmt.kind == StmtKind::While ||
         stmt.kind == StmtKind::Try || stmt.kind == StmtKind::With;
}

/// Returns arguments for a call about which nothing is known. Each stands for the reason.
Arguments unknownArguments(Tracer& tracer, const Function& function, bool isMethod) {
  Arguments arguments;
  for (const Parameter& parameter : llvm::ArrayRef(function.node->parameters).drop_front(isMethod)) {
    if (parameter.defaultValue) continue;
    const std::string declaration = tracer.declarationInText(parameter.name);
    const Deferred* why = tracer.attempt([&] {
      tracer.diagnostics.fail(parameter.loc, diag::callersArgument, std::string_view(function.node->name),
                              std::string_view(parameter.name),
                              declaration.empty() ? parameter.name.str() + ": int" : declaration);
    });
    if (parameter.kind == ParameterKind::Positional) arguments.positional.emplace_back(why);
    if (parameter.kind == ParameterKind::KeywordOnly) arguments.keywords.emplace_back(parameter.name, why);
  }
  return arguments;
}

void callUnknowing(Tracer& tracer, Object value) {
  if (value.is<const Function*>()) {
    const Function& function = *value.as<const Function*>();
    if (!tracer.called.contains(function.node)) tracer.call(value, unknownArguments(tracer, function, false));
  }
  if (!value.is<Class*>()) return;
  Class& type = *value.as<Class*>();
  Arguments arguments;
  if (const Object* init = findMember(type, "__init__"); init && init->is<const Function*>())
    arguments = unknownArguments(tracer, *init->as<const Function*>(), true);
  const Object self = tracer.call(value, arguments);
  std::vector<const Function*> methods;
  for (auto& [name, member] : type.members)
    if (member.is<const Function*>() && !member.as<const Function*>()->node->parameters.empty())
      methods.push_back(member.as<const Function*>());
  llvm::sort(methods, [](auto* a, auto* b) { return a->node->loc.begin < b->node->loc.begin; });
  for (const Function* method : methods) {
    if (tracer.called.contains(method->node)) continue;
    Arguments withSelf = unknownArguments(tracer, *method, true);
    withSelf.positional.insert(withSelf.positional.begin(), self);
    tracer.attempt([&] { tracer.call(method, withSelf); }, /*takesRaised=*/true);
  }
}

/// Calls the functions and the classes of the module that may lead to calls of the two functions.
void callUncalled(Tracer& tracer, const Ast& ast, const Callers& callers) {
  for (const Stmt* stmt : ast.body) {
    const auto* def = dyn_cast<DefStmt>(stmt);
    const auto* type = dyn_cast<ClassStmt>(stmt);
    if ((!def && !type) || !callers.mentions(*stmt)) continue;
    const Object value = tracer.globals.names.lookup(def ? def->function->name : type->function->name);
    tracer.tryOut([&] { callUnknowing(tracer, value); });
  }
}

/// Returns what an argument tells: a function, Deferred or None. Returns nullopt if only the caller of an uncalled
/// function would know it.
std::optional<Object> told(Object given) {
  if (given.is<NoneObject>() || given.isCallable()) return given;
  if (!given.is<const Deferred*>()) return std::nullopt;
  const Deferred& why = *given.as<const Deferred*>();
  const bool isArgument = llvm::any_of(
      why.findings, [](const Finding& finding) { return finding.diagnostic.id == diag::callersArgument.id; });
  return isArgument ? std::nullopt : std::optional(given);
}

bool isFunction(const std::optional<Object>& given) { return given && !given->is<NoneObject>(); }

bool isSame(const std::optional<Object>& a, const std::optional<Object>& b) {
  return a.has_value() == b.has_value() && (!a || isSameFunction(*a, *b));
}

std::vector<GivenMod> distinct(const std::vector<FlexCall>& calls) {
  std::vector<GivenMod> pairs, masks;
  const auto add = [](std::vector<GivenMod>& mods, GivenMod mod) {
    if (llvm::none_of(mods, [&](const GivenMod& known) {
          return isSame(known.score, mod.score) && isSame(known.mask, mod.mask) && isSame(known.prob, mod.prob) &&
                 isSame(known.sink, mod.sink) && isSame(known.weight, mod.weight);
        }))
      mods.push_back(mod);
  };
  for (const FlexCall& call : calls) {
    const bool makesMask = llvm::StringRef(call.callee) == "create_block_mask";
    GivenMod mod{.mask = told(call.mask), .at = call.at, .callee = call.callee};
    if (!makesMask)
      mod.score = told(call.score), mod.prob = told(call.prob), mod.sink = told(call.sink),
      mod.weight = told(call.weight);
    if (isFunction(mod.score) || isFunction(mod.mask) || isFunction(mod.prob) || isFunction(mod.sink) ||
        isFunction(mod.weight))
      add(makesMask ? masks : pairs, mod);
  }
  if (pairs.empty()) return masks;
  std::vector<GivenMod> whole;
  for (const GivenMod& pair : pairs) {
    if (pair.mask || masks.empty())
      add(whole, pair);
    else
      for (const GivenMod& mask : masks)
        add(whole, {pair.score, mask.mask, pair.prob, pair.sink, pair.weight, mask.at, mask.callee});
  }
  return whole;
}

} // namespace

std::vector<GivenMod> givenMods(Tracer& tracer, const Ast& ast, const Expr* last) {
  const llvm::StringRef text = tracer.diagnostics.source(0).text;
  if (!text.contains("create_block_mask") && !text.contains("flex_attention")) return {};
  const Callers callers(ast, text);
  for (const Stmt* stmt : ast.body)
    if (const IfStmt* script = mainPart(*stmt); script && callers.mentions(*stmt))
      tracer.tryOut([&] { tracer.runModule(script->clauses[0].second); });
  if (last && last->kind == ExprKind::Call) tracer.tryOut([&] { tracer.eval(*last); });
  if (tracer.flexCalls.empty()) // parts that were put off
    for (Stmt* stmt : ast.body)
      if (isCompound(*stmt) && callers.mentions(*stmt)) tracer.tryOut([&] { tracer.runModule({stmt}); });
  std::vector<GivenMod> given = distinct(tracer.flexCalls);
  const size_t calls = tracer.flexCalls.size();
  if (given.size() > 1 || (given.size() == 1 && given[0].score && given[0].mask)) return given;
  callUncalled(tracer, ast, callers);
  const std::vector<GivenMod> others = distinct({tracer.flexCalls.begin() + long(calls), tracer.flexCalls.end()});
  if (given.empty()) return others;
  if (others.size() != 1) return given;
  if (!given[0].score) given[0].score = others[0].score;
  if (!given[0].mask) given[0].mask = others[0].mask;
  if (!given[0].prob) given[0].prob = others[0].prob;
  if (!given[0].sink) given[0].sink = others[0].sink;
  if (!given[0].weight) given[0].weight = others[0].weight;
  return given;
}

std::vector<GivenMod> givenFunctions(Tracer& tracer, const Ast& ast, llvm::StringRef name) {
  givenMods(tracer, ast, nullptr);
  callUncalled(tracer, ast, Callers(ast, tracer.diagnostics.source(0).text));
  std::vector<GivenMod> found;
  const auto add = [&](GivenMod mod) {
    const Object function = *mod.only();
    if (!function.is<const Function*>() || function.as<const Function*>()->node->name != name) return;
    if (llvm::none_of(found, [&](const GivenMod& one) { return isSameFunction(function, *one.only()); }))
      found.push_back(mod);
  };
  for (const FlexCall& call : tracer.flexCalls) {
    add({.score = call.score, .at = call.at, .callee = call.callee});
    add({.mask = call.mask, .at = call.at, .callee = call.callee});
    add({.prob = call.prob, .at = call.at, .callee = call.callee});
    add({.sink = call.sink, .at = call.at, .callee = call.callee});
    add({.weight = call.weight, .at = call.at, .callee = call.callee});
  }
  return found;
}

std::string modName(Object function) {
  if (function.is<const Function*>()) {
    const llvm::StringRef name = function.as<const Function*>()->node->name;
    return name == "<lambda>" ? "a lambda" : name.str();
  }
  if (function.is<const Partial*>()) return "partial(" + modName(function.as<const Partial*>()->callee) + ")";
  if (function.is<Instance*>()) return function.as<Instance*>()->type->name.str() + "(...)";
  if (function.is<const Builtin*>()) return function.as<const Builtin*>()->name;
  if (function.is<const Deferred*>()) return "what cannot be evaluated";
  if (!function.is<const ModList*>()) return "a function";
  const ModList& list = *function.as<const ModList*>();
  std::string names;
  for (Object mod : list.mods) names += (names.empty() ? "" : ", ") + modName(mod);
  return list.name + ("(" + names) + ")";
}

std::optional<Loc> definitionOf(Object function) {
  while (function.is<const Partial*>()) function = function.as<const Partial*>()->callee;
  if (!function.is<const Function*>()) return std::nullopt;
  return function.as<const Function*>()->node->loc;
}

} // namespace attnc::dsl
