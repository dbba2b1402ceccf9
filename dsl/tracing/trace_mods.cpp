// In: a parsed text. Out: the outputs `score` and `mask` of the module.
//
// A mod is what the names score_mod and mask_mod are bound to; without them, the one function of the text that takes 5
// (score) or 4 (mask) positional arguments; or the expression that ends the text.
#include "dsl/tracing/trace_mods.h"

#include "dsl/objects/arithmetic.h"

namespace attnc::dsl {

using ir::ParamKind;

namespace {

struct Candidate {
  llvm::StringRef name;
  Object function;
  Loc loc;
};

/// Parameters that a call must give by position: those without a default that nothing binds yet.
std::optional<size_t> requiredArguments(Object callable) {
  size_t given = 0;
  llvm::StringSet<> named;
  while (callable.is<const Partial*>()) {
    given += callable.as<const Partial*>()->arguments.size();
    for (auto& [name, value] : callable.as<const Partial*>()->keywords) named.insert(name);
    callable = callable.as<const Partial*>()->callee;
  }
  if (callable.is<const MaskList*>()) return 4 - std::min<size_t>(given, 4);
  if (!callable.is<const Function*>()) return std::nullopt;
  size_t required = 0;
  for (const Parameter& parameter : callable.as<const Function*>()->node->parameters)
    required +=
        parameter.kind == ParameterKind::Positional && !parameter.defaultValue && !named.contains(parameter.name);
  return required - std::min(given, required);
}

class Mods {
public:
  explicit Mods(Tracer& tracer) : tracer(tracer), module(tracer.module) {}

  void run(const Ast& ast) {
    const Expr* bare = nullptr;
    Block body = ast.body;
    if (!body.empty() && body.back()->kind == StmtKind::Expression) {
      bare = llvm::cast<ExpressionStmt>(body.back())->value;
      if (bare->kind == ExprKind::String)
        bare = nullptr; // a docstring
      else
        body.pop_back();
    }
    tracer.text = &ast.body;
    tracer.runModule(body);
    checkDefines();
    find(body);
    if (!score && !mask && bare) return traceBare(*bare);
    if (bare) {
      tracer.at = bare->loc;
      tracer.diagnostics.report(bare->loc, diag::strayExpression);
    }
    if (!score && !mask && tracer.diagnostics.empty()) tracer.diagnostics.report({0, 0, 0}, diag::noMod);
    if (score) guard([&] { traceScore(*score); });
    if (mask) guard([&] { traceMask(*mask); });
  }

private:
  template <class Fn> void guard(Fn fn) {
    try {
      fn();
    } catch (const Abort& abort) {
      if (abort.fatal) throw;
    }
  }

  void checkDefines() {
    for (auto& [name, define] : tracer.defines)
      if (!define.used) tracer.diagnostics.report(define.loc, diag::unknownDefine, name);
  }

  // Where a name was bound: the last statement of the module that binds it.
  static Loc bindingOf(const Block& body, llvm::StringRef name) {
    Loc loc;
    for (const Stmt* stmt : body) {
      if (const auto* def = llvm::dyn_cast<DefStmt>(stmt))
        if (def->function->name == name) loc = def->function->loc;
      if (const auto* assign = llvm::dyn_cast<AssignStmt>(stmt))
        for (const Expr* target : assign->targets)
          if (target->kind == ExprKind::Name && llvm::cast<NameExpr>(target)->name == name) loc = target->loc;
    }
    return loc;
  }

  /// The value of score_mod or mask_mod, if the text binds it to a function. None means absent, as in FlexAttention.
  std::optional<Candidate> named(const Block& body, llvm::StringRef name, size_t arity) {
    auto bound = tracer.globals.names.find(name);
    if (bound == tracer.globals.names.end() || bound->second.is<NoneObject>() || bound->second.is<PoisonObject>())
      return std::nullopt;
    Candidate candidate{name, bound->second, bindingOf(body, name)};
    if (!bound->second.isCallable()) {
      tracer.diagnostics.report(candidate.loc, diag::modNotCallable, std::string_view(name),
                                tracer.describe(bound->second));
      return std::nullopt;
    }
    std::optional<size_t> required = requiredArguments(bound->second);
    if (required && *required > arity) {
      tracer.diagnostics.report(candidate.loc, diag::modArity, std::string_view(name), Count(arity), Count(*required));
      return std::nullopt;
    }
    return candidate;
  }

  void find(const Block& body) {
    score = named(body, "score_mod", 5);
    mask = named(body, "mask_mod", 4);
    bool isNamed = tracer.globals.names.count("score_mod") || tracer.globals.names.count("mask_mod");
    if (isNamed || !tracer.diagnostics.empty()) return;
    std::vector<Candidate> candidates;
    for (auto& [name, value] : tracer.globals.names)
      if (auto required = requiredArguments(value); required && (*required == 4 || *required == 5))
        candidates.push_back({name, value, bindingOf(body, name)});
    if (candidates.size() > 1) {
      llvm::sort(candidates, [](const Candidate& a, const Candidate& b) { return a.loc.begin < b.loc.begin; });
      auto isScore = [](const Candidate& candidate) { return requiredArguments(candidate.function) == 5u; };
      auto binding = [&](const Candidate& candidate) {
        return (isScore(candidate) ? "`score_mod = " : "`mask_mod = ") + candidate.name.str() + "`";
      };
      std::string hint = binding(candidates[1]);
      if (isScore(candidates[0]) != isScore(candidates[1])) hint = binding(candidates[0]) + " and " + hint;
      tracer.diagnostics.report(candidates[1].loc, diag::ambiguousMod, std::string_view(candidates[0].name),
                                std::string_view(candidates[1].name), hint);
    }
    if (candidates.size() != 1) return;
    (*requiredArguments(candidates[0].function) == 5 ? score : mask) = candidates[0];
  }

  Object param(ParamKind kind) { return module.param(kind); }

  Arguments arguments(bool withScore) {
    Arguments result;
    if (withScore) result.positional.push_back(param(ParamKind::Score));
    for (ParamKind kind : {ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx})
      result.positional.push_back(param(kind));
    return result;
  }

  void traceScore(const Candidate& candidate) {
    tracer.at = tracer.resultLoc = candidate.loc;
    Object value = tracer.call(candidate.function, arguments(/*withScore=*/true));
    tracer.at = tracer.resultLoc;
    setScore(candidate.name, value);
  }

  void traceMask(const Candidate& candidate) {
    tracer.at = tracer.resultLoc = candidate.loc;
    Object value = tracer.call(candidate.function, arguments(/*withScore=*/false));
    tracer.at = tracer.resultLoc;
    setMask(candidate.name, value);
  }

  void setScore(std::string_view name, Object value) {
    value = decay(tracer, value);
    if (value.is<NoneObject>()) tracer.fail(diag::returnsNone, name);
    if (!value.isNumber()) tracer.fail(diag::scoreResult, name, tracer.describe(value));
    module.setOutput(ir::kScore, lift(tracer, value, ir::Type::F32));
  }

  void setMask(std::string_view name, Object value) {
    value = decay(tracer, value);
    if (value.is<NoneObject>()) tracer.fail(diag::returnsNone, name);
    bool isBool = value.is<bool>() || (value.isTraced() && tracer.type(value.as<ir::Value>()) == ir::Type::Bool);
    if (!isBool) tracer.fail(diag::maskResult, name, tracer.describe(value));
    module.setOutput(ir::kMask, lift(tracer, value, ir::Type::Bool));
  }

  /// An expression with the five names: a score_mod if it asks for `score`, a mask_mod if it yields a bool.
  void traceBare(const Expr& expr) {
    Object value = tracer.evalWith(expr, {{"score", param(ParamKind::Score)},
                                          {"b", param(ParamKind::B)},
                                          {"h", param(ParamKind::H)},
                                          {"q_idx", param(ParamKind::QIdx)},
                                          {"kv_idx", param(ParamKind::KvIdx)}});
    tracer.at = expr.loc;
    value = decay(tracer, value);
    if (value.isCallable()) {
      std::optional<size_t> required = requiredArguments(value);
      Candidate candidate{"the expression", value, expr.loc};
      if (required == 5u) return traceScore(candidate);
      if (required == 4u) return traceMask(candidate);
    }
    bool isBool = value.is<bool>() || (value.isTraced() && tracer.type(value.as<ir::Value>()) == ir::Type::Bool);
    if (tracer.lookups.contains("score")) return setScore("the expression", value);
    if (!isBool) tracer.fail(diag::bareExpression, tracer.describe(value));
    setMask("the expression", value);
  }

  Tracer& tracer;
  ir::Module& module;
  std::optional<Candidate> score, mask;
};

} // namespace

void traceMods(Tracer& tracer, const Ast& ast) { Mods(tracer).run(ast); }

} // namespace attnc::dsl
