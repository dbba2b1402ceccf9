// In: a parsed text. Out: the outputs `score`, `mask`, `prob_factor` or `prob_weight`, `sink` and `is_weight` of the
// module, and its reductions.
//
// The mod is the first of these that exists: what an expression given with the text yields; what the text gives to
// create_block_mask and flex_attention; what the names score_mod and mask_mod are bound to; the one function of the
// text with 5 positional arguments (score) and the one with 4 (mask); the expression that ends the text.
#include "dsl/tracing/trace_mods.h"

#include "dsl/objects/lazy.h"
#include "dsl/objects/repairs.h"
#include "dsl/objects/scalars.h"
#include "dsl/objects/tensors.h"
#include "dsl/tracing/given_mods.h"
#include "dsl/tracing/parameters.h"
#include "dsl/tracing/suggestions.h"
#include "dsl/tracing/usage.h"
#include "ir/choices.h"
#include "ir/prob_factor.h"
#include "ir/reductions.h"

#include <fmt/format.h>
#include <llvm/ADT/StringExtras.h>

namespace attnc::dsl {

using ir::ParamKind;

namespace {

struct Candidate {
  llvm::StringRef name;
  Object function;
  Loc loc;
  std::string why = {};
};

/// A kind of mod.
struct Kind {
  const char* name;
  size_t arity;
  const char* parameters;
};
constexpr Kind kScoreMod{"score_mod", 5, "score, b, h, q_idx, kv_idx"}, kMaskMod{"mask_mod", 4, "b, h, q_idx, kv_idx"},
    kProbMod{"prob_mod", 5, "prob, b, h, q_idx, kv_idx"}, kSinkMod{"sink_mod", 3, "b, h, q_idx"},
    kWeightMod{"weight_mod", 5, "score, b, h, q_idx, kv_idx"},
    kReduced{"an output", 6, "prob, score, b, h, q_idx, kv_idx"};

/// Returns the kind of mod that a function is by its parameters; null: it is none.
const Kind* kindOf(Object callable) {
  const std::optional<size_t> required = requiredArguments(callable);
  if (required == kSinkMod.arity && lastParameter(callable) == "q_idx") return &kSinkMod;
  if (required == kMaskMod.arity) return &kMaskMod;
  if (required != kScoreMod.arity) return nullptr;
  return firstParameter(callable) == "prob" ? &kProbMod : &kScoreMod;
}

/// Whether a function is the mod, or one that the mod chooses.
bool isPartOf(Object function, Object mod) {
  if (isSameFunction(function, mod)) return true;
  if (!mod.is<const ModList*>() || !mod.as<const ModList*>()->which) return false;
  return llvm::any_of(mod.as<const ModList*>()->mods, [&](Object part) { return isPartOf(function, part); });
}

class Mods {
public:
  explicit Mods(Tracer& tracer) : tracer(tracer), module(tracer.module) {}

  void run(const Ast& ast, llvm::ArrayRef<const Expr*> picks) {
    const Expr* bare = nullptr;
    Block body = ast.body;
    if (picks.empty() && !body.empty() && body.back()->kind == StmtKind::Expression) {
      bare = llvm::cast<ExpressionStmt>(body.back())->value;
      if (bare->kind == ExprKind::String)
        bare = nullptr; // a docstring
      else
        body.pop_back();
    }
    tracer.text = &ast.body;
    tracer.runModule(body);
    if (!tracer.diagnostics.empty()) return;
    std::vector<GivenMod> given;
    if (picks.empty()) given = givenMods(tracer, ast, bare);
    checkDefines();
    for (const Expr* pick : picks) guard([&] { take(*pick, ast); });
    if (picks.empty()) find(body, ast, given);
    if (picks.empty() && !hasAny() && bare && tracer.diagnostics.empty()) {
      guard([&] { traceBare(*bare); });
      ir::maskUnchosen(module);
      return setConditions();
    }
    // A call, such as `main()`, is a statement like others.
    if (bare && hasAny() && bare->kind != ExprKind::Call) {
      tracer.at = bare->loc;
      tracer.diagnostics.report(bare->loc, diag::strayExpression);
    }
    if (!hasAny() && tracer.diagnostics.empty()) tracer.diagnostics.report({0, 0, 0}, diag::noMod);
    if (score) guardMod([&] { traceScore(*score); });
    if (mask) guardMod([&] { traceMask(*mask); });
    if (prob) guardMod([&] { traceProb(*prob); });
    if (sink) guardMod([&] { traceSink(*sink); });
    if (weight) guardMod([&] { traceWeight(*weight); });
    for (const Tracer::DeclaredOutput& output : tracer.outputs) guardMod([&] { traceOutput(output); });
    ir::maskUnchosen(module);
    setConditions();
  }

  /// Returns the mods that were found, and other functions with as many arguments.
  std::vector<ModChoice> choices(const Block& body) const {
    std::vector<ModChoice> result;
    for (const Kind* kind : {&kScoreMod, &kMaskMod, &kProbMod, &kSinkMod, &kWeightMod}) {
      const std::optional<Candidate>& taken = of(*kind);
      if (!taken) continue;
      ModChoice choice{kind->name, functionOf(*taken), taken->why, {}};
      for (const Candidate& other : functionsOf(body, *kind))
        if (hasModNames(other.function) && !isPartOf(other.function, taken->function))
          choice.others.push_back({other.name.str(), functionOf(other).line});
      result.push_back(std::move(choice));
    }
    return result;
  }

private:
  bool hasAny() const { return score || mask || prob || sink || weight || !tracer.outputs.empty(); }
  std::optional<Candidate>& of(const Kind& kind) {
    if (&kind == &kWeightMod) return weight;
    return &kind == &kScoreMod ? score : &kind == &kMaskMod ? mask : &kind == &kProbMod ? prob : sink;
  }
  const std::optional<Candidate>& of(const Kind& kind) const { return const_cast<Mods*>(this)->of(kind); }

  int lineOf(Loc loc) const {
    const bool isPlace = loc.text == 0 && loc.end > 0;
    return isPlace ? tracer.diagnostics.lineAndColumn(loc).first : 0;
  }

  ModFunction functionOf(const Candidate& candidate) const {
    return {modName(candidate.function), lineOf(definitionOf(candidate.function).value_or(candidate.loc))};
  }

  template <class Fn> void guard(Fn fn) {
    tracer.deferrals.clear();
    const Deferred* why = tracer.attempt(fn, /*takesRaised=*/true);
    if (why) tracer.report(*why);
  }

  /// Does the same for the function of a mod. If it fails, all errors that its statements put off are reported, so that
  /// one run shows all.
  template <class Fn> void guardMod(Fn fn) {
    const size_t before = tracer.diagnostics.size();
    tracer.isInMod = true;
    guard(fn);
    tracer.isInMod = false;
    if (tracer.diagnostics.size() == before) return;
    const std::vector<const Deferred*> others = std::move(tracer.deferrals);
    for (const Deferred* other : others) tracer.report(*other);
  }

  void checkDefines() {
    for (auto& [name, define] : tracer.defines)
      if (!define.used) tracer.diagnostics.report(define.loc, diag::unknownDefine, name, insteadOfDefine(name, define));
  }

  std::string insteadOfDefine(const std::string& name, const Define& define) const {
    if (tracer.declared.count(name))
      return "`" + name + "` is a capture, which the launch gives: `--set " + name + "=" +
             tracer.diagnostics.textOf(define.loc) + "`";
    const llvm::SmallVector<llvm::StringRef> constants(tracer.constants.begin(), tracer.constants.end());
    const std::string meant = closest(name, constants);
    return meant.empty() ? "a constant is `NAME = literal` at module level" : meant;
  }

  // Returns where a name is bound: the last statement of the module that binds it.
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

  /// Returns the function that the text binds to the name of a kind. As in FlexAttention, None means absent.
  std::optional<Candidate> named(const Block& body, const Kind& kind) {
    const llvm::StringRef name = kind.name;
    auto bound = tracer.globals.names.find(name);
    if (bound == tracer.globals.names.end() || bound->second.is<NoneObject>()) return std::nullopt;
    if (bound->second.is<const Deferred*>()) {
      tracer.report(*bound->second.as<const Deferred*>());
      return std::nullopt;
    }
    Candidate candidate{name, bound->second, bindingOf(body, name), "its name"};
    if (!bound->second.isCallable()) {
      tracer.diagnostics.report(candidate.loc, diag::modNotCallable, std::string_view(name),
                                tracer.describe(bound->second));
      return std::nullopt;
    }
    std::optional<size_t> required = requiredArguments(bound->second);
    if (refuseColumn(candidate, kind)) return std::nullopt;
    if (required && (*required > kind.arity || mostArguments(bound->second) < kind.arity)) {
      tracer.diagnostics.report(candidate.loc, diag::modArity, std::string_view(name), Count(kind.arity),
                                Count(*required), kind.parameters);
      return std::nullopt;
    }
    return candidate;
  }

  /// Warns of a mod whose parameters have the usual names in another order: the caller gives them by position.
  void warnOfOrder(const Candidate& candidate, const Kind& kind) {
    if (!candidate.function.is<const Function*>()) return;
    const FunctionNode& function = *candidate.function.as<const Function*>()->node;
    llvm::SmallVector<llvm::StringRef, 5> usual;
    llvm::StringRef(kind.parameters).split(usual, ", ");
    for (size_t i = 0; i < std::min(function.parameters.size(), usual.size()); ++i) {
      const llvm::StringRef name = function.parameters[i].name;
      if (name == usual[i] || !llvm::is_contained(usual, name)) continue;
      tracer.diagnostics.warn(function.parameters[i].loc, diag::parameterOrder, std::string_view(name),
                              std::string_view(usual[i]), modName(candidate.function), kind.parameters);
      return;
    }
  }

  /// Refuses a sink_mod that asks for the key.
  bool refuseColumn(const Candidate& candidate, const Kind& kind) {
    const bool asks = &kind == &kSinkMod && lastParameter(candidate.function) == "kv_idx";
    if (asks) tracer.diagnostics.report(candidate.loc, diag::sinkColumn, candidate.name);
    return asks;
  }

  void find(const Block& body, const Ast& ast, llvm::ArrayRef<GivenMod> given) {
    const bool isNamed = tracer.globals.names.count("score_mod") || tracer.globals.names.count("mask_mod");
    if (given.size() > 1 && !isNamed) return refuseSeveral(given);
    const GivenMod one = given.size() == 1 ? given[0] : GivenMod{};
    if (one.score) score = this->given(one, *one.score, kScoreMod);
    if (one.mask) mask = this->given(one, *one.mask, kMaskMod);
    if (one.prob) prob = this->given(one, *one.prob, kProbMod);
    if (one.sink) sink = this->given(one, *one.sink, kSinkMod);
    if (one.weight) weight = this->given(one, *one.weight, kWeightMod);
    if (!one.score && isNamed) score = named(body, kScoreMod);
    if (!one.mask && isNamed) mask = named(body, kMaskMod);
    const bool namesProb = tracer.globals.names.count("prob_mod");
    if (!one.prob && namesProb) prob = named(body, kProbMod);
    if (!one.sink) sink = named(body, kSinkMod);
    if (!one.weight) weight = named(body, kWeightMod);
    if (isNamed || !tracer.diagnostics.empty()) return;
    std::vector<Candidate> scores = functionsOf(body, kScoreMod), masks = functionsOf(body, kMaskMod);
    // If the parameters of some are named as in mods, the others are not mods.
    const auto isLikely = [](const Candidate& candidate) { return hasModNames(candidate.function); };
    if (llvm::any_of(scores, isLikely) || llvm::any_of(masks, isLikely))
      for (std::vector<Candidate>* candidates : {&scores, &masks})
        llvm::erase_if(*candidates, [&](const Candidate& candidate) { return !isLikely(candidate); });
    if (!one.score) score = only(scores, kScoreMod, ast);
    if (!one.mask) mask = only(masks, kMaskMod, ast);
    if (!one.prob && !namesProb) prob = only(functionsOf(body, kProbMod), kProbMod, ast);
  }

  /// Returns the kind of mod that a function of the module is by its parameters, unless it is bound to prob_mod,
  /// sink_mod or weight_mod.
  const Kind* kindOfNamed(llvm::StringRef name, Object value) const {
    const auto is = [&](const Kind& kind) {
      return name == kind.name || (of(kind) && isSameFunction(value, of(kind)->function));
    };
    for (const Kind* kind : {&kSinkMod, &kProbMod, &kWeightMod})
      if (is(*kind)) return kind;
    return kindOf(value);
  }

  /// Returns the functions of the module of a kind. Imported functions do not count: they are helpers.
  std::vector<Candidate> functionsOf(const Block& body, const Kind& kind) const {
    std::vector<Candidate> candidates;
    for (auto& [name, value] : tracer.globals.names)
      if (kindOfNamed(name, value) == &kind && !value.is<const Builtin*>())
        candidates.push_back({name, value, bindingOf(body, name), fmt::format("it takes {} arguments", kind.arity)});
    llvm::sort(candidates, [](const Candidate& a, const Candidate& b) {
      return std::make_tuple(a.loc.begin, a.name) < std::make_tuple(b.loc.begin, b.name);
    });
    return candidates;
  }

  /// Returns the function given to create_block_mask or flex_attention; nullopt for None, and for what is not a mod.
  std::optional<Candidate> given(const GivenMod& mod, Object function, const Kind& kind) {
    if (function.is<NoneObject>()) return std::nullopt;
    if (function.is<const Deferred*>()) {
      tracer.report(*function.as<const Deferred*>());
      return std::nullopt;
    }
    std::optional<size_t> required = requiredArguments(function);
    const Candidate candidate{kind.name, function, mod.at,
                              fmt::format("given to `{}` in line {}", mod.callee, lineOf(mod.at))};
    if (refuseColumn(candidate, kind)) return std::nullopt;
    if (required && *required > kind.arity)
      tracer.diagnostics.report(mod.at, diag::modArity, kind.name, Count(kind.arity), Count(*required),
                                kind.parameters);
    return candidate;
  }

  void refuseSeveral(llvm::ArrayRef<GivenMod> given) {
    std::string first;
    std::vector<std::string> places;
    for (const GivenMod& mod : given) {
      std::string names;
      for (const std::optional<Object>& function : {mod.score, mod.mask, mod.prob, mod.sink, mod.weight})
        if (function && !function->is<NoneObject>())
          names += (names.empty() ? "`" : " and `") + modName(*function) + "`";
      const std::string place = fmt::format("{} in line {}", names, lineOf(mod.at));
      if (!llvm::is_contained(places, place)) places.push_back(place);
      for (const std::optional<Object>& function : {mod.mask, mod.score, mod.prob, mod.sink, mod.weight})
        if (first.empty() && function && function->is<const Function*>())
          first = pickOf(*function->as<const Function*>());
    }
    std::string all = llvm::join(llvm::ArrayRef(places).take_front(8), ", ");
    if (places.size() > 8) all += ", ...";
    if (places.size() == 1) all += ", made several times";
    tracer.diagnostics.report(given[1].at, diag::severalMods, all, first.empty() ? "make_mask(size)" : first);
  }

  /// Returns what picks a function: its name, or the call of the function of the module that makes it, `make(size)`.
  /// Empty if neither does.
  std::string pickOf(const Function& function) const {
    const auto isGlobal = [&](llvm::StringRef name) { return tracer.globals.names.count(name) != 0; };
    if (isGlobal(function.node->name)) return function.node->name.str();
    const FunctionNode* maker = function.closure ? function.closure->function : nullptr;
    if (!maker || !isGlobal(maker->name)) return "";
    llvm::SmallVector<llvm::StringRef> needed;
    for (const Parameter& parameter : maker->parameters)
      if (parameter.kind == ParameterKind::Positional && !parameter.defaultValue) needed.push_back(parameter.name);
    return fmt::format("\"{}({})\"", maker->name.str(), llvm::join(needed, ", "));
  }

  /// Returns the candidate that is the mod: the only one; the only one that the text does not call; or the only one
  /// that it gives to `create_block_mask` or `flex_attention` in a call that could not be evaluated.
  std::optional<Candidate> only(std::vector<Candidate> candidates, const Kind& kind, const Ast& ast) {
    auto keep = [&](auto isLikely) {
      if (candidates.size() < 2 || llvm::none_of(candidates, isLikely)) return;
      llvm::erase_if(candidates, [&](const Candidate& candidate) { return !isLikely(candidate); });
    };
    keep([&](const Candidate& candidate) { return !usageOf(ast.body, candidate.name).isCalled; });
    keep([&](const Candidate& candidate) { return usageOf(ast.body, candidate.name).isGivenAsMod; });
    if (candidates.empty()) return std::nullopt;
    if (candidates.size() == 1) return candidates[0];
    tracer.diagnostics.report(candidates[1].loc, diag::ambiguousMod, std::string_view(candidates[0].name),
                              std::string_view(candidates[1].name),
                              fmt::format("`{} = {}`", kind.name, candidates[1].name.str()));
    return std::nullopt;
  }

  /// Takes the mod, or the pair of mods, that an expression given with the text yields. A function that makes mods is
  /// called with the captures that its parameters are declared as.
  void take(const Expr& pick, const Ast& ast) {
    std::vector<GivenMod> named; // functions that stand in other functions
    if (const auto* name = llvm::dyn_cast<NameExpr>(&pick); name && !tracer.globals.names.count(name->name))
      named = givenFunctions(tracer, ast, name->name);
    if (named.size() > 1) return refuseSeveral(named);
    Object value = named.empty() ? tracer.eval(pick) : *named[0].only();
    tracer.at = pick.loc;
    if (!value.is<Sequence*>()) return takeOne(value, pick.loc);
    for (Object item : tracer.items(value))
      if (!item.is<NoneObject>()) takeOne(item, pick.loc);
  }

  void takeOne(Object value, Loc loc) {
    auto isMod = [](Object made) { return kindOf(made) != nullptr; };
    if (value.isCallable() && (!isMod(value) || !hasModNames(value))) {
      Object made;
      const Deferred* why = tracer.attempt([&] { made = tracer.call(value, {}); });
      if (!why && (isMod(made) || made.is<Sequence*>())) {
        if (!made.is<Sequence*>()) return takeOne(made, loc);
        for (Object item : tracer.items(made))
          if (!item.is<NoneObject>()) takeOne(item, loc);
        return;
      }
      if (why && !isMod(value)) tracer.force(*why);
    }
    tracer.at = loc;
    if (!value.isCallable()) tracer.fail(diag::pickedNoMod, tracer.describe(value));
    const Kind* kind = kindOfNamed(modName(value), value);
    if (!kind) tracer.fail(diag::pickedArity, Count(requiredArguments(value).value_or(0)));
    std::optional<Candidate>& place = of(*kind);
    if (place) tracer.fail(diag::pickedTwice, kind->name);
    place = Candidate{"the mod", value, loc, "`--mod`"};
  }

  Object param(ParamKind kind) { return module.param(kind); }

  /// Returns what the function of a mod returns for the parameters of its kind.
  Object resultOf(const Candidate& candidate, const Kind& kind) {
    warnOfOrder(candidate, kind);
    tracer.at = tracer.resultLoc = candidate.loc;
    Arguments arguments;
    if (kind.arity == kReduced.arity) arguments.positional.push_back(param(ParamKind::Prob));
    if (kind.arity >= kScoreMod.arity) arguments.positional.push_back(param(ParamKind::Score));
    for (ParamKind each : {ParamKind::B, ParamKind::H, ParamKind::QIdx, ParamKind::KvIdx})
      if (each != ParamKind::KvIdx || kind.arity != kSinkMod.arity) arguments.positional.push_back(param(each));
    const Object value = tracer.call(candidate.function, arguments);
    tracer.at = tracer.resultLoc;
    return checked(candidate.name, value);
  }

  Object checked(std::string_view name, Object value) {
    value = decay(tracer, value);
    if (value.is<NoneObject>()) tracer.fail(diag::returnsNone, name);
    if (value.is<const Array*>() && value.as<const Array*>()->element) failUnindexed(tracer, *value.as<const Array*>());
    return value;
  }

  void traceScore(const Candidate& candidate) { setScore(candidate.name, resultOf(candidate, kScoreMod)); }

  void traceMask(const Candidate& candidate) { setMask(candidate.name, resultOf(candidate, kMaskMod)); }

  /// The weight takes the place of the score.
  void traceProb(const Candidate& candidate) {
    const Object value = resultOf(candidate, kProbMod);
    if (!value.isNumber()) tracer.fail(diag::probResult, tracer.describe(value));
    ir::setProb(module, lift(tracer, value, ir::Type::F32));
  }

  /// Its score is what score_mod returns, which is traced before.
  void traceWeight(const Candidate& candidate) {
    tracer.at = candidate.loc;
    for (const Kind* other : {&kProbMod, &kSinkMod})
      if (of(*other)) tracer.fail(diag::weightAlone, other->name);
    if (!tracer.outputs.empty()) tracer.fail(diag::weightAlone, tracer.outputs.front().name);
    const Object value = resultOf(candidate, kWeightMod);
    if (!value.isNumber()) tracer.fail(diag::weightResult, tracer.describe(value));
    module.setOutput({std::string(ir::kWeight), ir::kScore.params, lift(tracer, value, ir::Type::F32)});
    ir::composeWeight(module);
  }

  void traceSink(const Candidate& candidate) {
    const Object value = resultOf(candidate, kSinkMod);
    const bool isFloat = value.isTraced() && tracer.type(value.as<ir::Value>()) == ir::Type::F32;
    if (!isFloat && (!value.isNumber() || value.isTraced() || value.is<bool>()))
      tracer.fail(diag::sinkResult, candidate.name, tracer.describe(value));
    module.setOutput(ir::kSink, lift(tracer, value, ir::Type::F32));
  }

  void traceOutput(const Tracer::DeclaredOutput& output) {
    const auto isOther = [&](const Tracer::DeclaredOutput& other) {
      return &other != &output && other.name == output.name;
    };
    tracer.at = output.loc;
    if (tracer.declared.count(output.name) || llvm::any_of(tracer.outputs, isOther))
      tracer.fail(diag::redeclared, std::string_view(output.name));
    const ir::Reduction reduction{output.name.str(), output.what->isMax, tracer.keptBy(output)};
    if (ir::reductionsOf(module).size() >= ir::kMaxReductions)
      tracer.fail(diag::tooManyOutputs, std::string_view(output.name), Count(ir::kMaxReductions));
    const Object function = output.what->function;
    if (function.is<const Deferred*>()) tracer.force(*function.as<const Deferred*>());
    if (!function.isCallable())
      tracer.fail(diag::outputFunction, std::string_view(output.name), tracer.describe(function));
    const std::string name = modName(function);
    const std::optional<size_t> required = requiredArguments(function);
    if (required && (*required > kReduced.arity || mostArguments(function) < kReduced.arity))
      tracer.fail(diag::modArity, std::string_view(name), Count(kReduced.arity), Count(*required), kReduced.parameters);
    const Object value = resultOf({name, function, output.loc}, kReduced);
    module.setOutput(reduction.output(), ir::kReductionParams, numberOf(name, value));
  }

  /// The names sort in the order of the text, because bind() reports the first condition that does not hold.
  void setConditions() {
    static_assert(kMaxConditions <= 100);
    size_t count = 0;
    for (Condition& condition : tracer.conditions)
      module.setOutput(
          {fmt::format("condition_{:02}", count++), {}, condition.value, std::move(condition.words), condition.line});
  }

  std::string resultRepair(Object value, bool isMask) const {
    if (isMask && value.isNumber())
      return "compare it: `" + shortTextOf(tracer, tracer.at, "...") + " != 0`, or `>= 0`";
    if (value.is<const Str*>()) return "write `float(\"-inf\")` for an infinity, a number without quotes for others";
    if (value.is<Sequence*>()) return isMask ? "return one bool: join conditions by `&` and `|`" : "return one number";
    if (value.isCallable()) return "call the function: `f(...)`";
    return isMask ? "return a condition, such as `q_idx >= kv_idx`" : "return the score, or a number computed from it";
  }

  /// Returns the float that a function returns.
  ir::Value numberOf(std::string_view name, Object value) {
    value = checked(name, value);
    if (!value.isNumber())
      tracer.fail(diag::scoreResult, name, tracer.describe(value), resultRepair(value, /*isMask=*/false));
    return lift(tracer, value, ir::Type::F32);
  }

  void setScore(std::string_view name, Object value) { module.setOutput(ir::kScore, numberOf(name, value)); }

  void setMask(std::string_view name, Object value) {
    value = checked(name, value);
    bool isBool = value.is<bool>() || (value.isTraced() && tracer.type(value.as<ir::Value>()) == ir::Type::Bool);
    if (!isBool) tracer.fail(diag::maskResult, name, tracer.describe(value), resultRepair(value, /*isMask=*/true));
    module.setOutput(ir::kMask, lift(tracer, value, ir::Type::Bool));
  }

  /// Traces an expression over the five names: a score_mod if it uses `score`, a mask_mod if it yields a bool.
  void traceBare(const Expr& expr) {
    Object value = tracer.evalWith(expr, {{"score", param(ParamKind::Score)},
                                          {"b", param(ParamKind::B)},
                                          {"h", param(ParamKind::H)},
                                          {"q_idx", param(ParamKind::QIdx)},
                                          {"kv_idx", param(ParamKind::KvIdx)}});
    tracer.at = expr.loc;
    value = decay(tracer, value);
    if (value.isCallable()) {
      const Kind* kind = kindOf(value);
      Candidate candidate{"the expression", value, expr.loc};
      if (kind == &kScoreMod) return traceScore(candidate);
      if (kind == &kMaskMod) return traceMask(candidate);
      if (kind == &kProbMod) return traceProb(candidate);
    }
    bool isBool = value.is<bool>() || (value.isTraced() && tracer.type(value.as<ir::Value>()) == ir::Type::Bool);
    if (tracer.lookups.contains("score")) return setScore("the expression", value);
    if (value.is<const Array*>()) return setMask("the expression", value);
    if (!isBool) tracer.fail(diag::bareExpression, tracer.describe(value));
    setMask("the expression", value);
  }

  Tracer& tracer;
  ir::Module& module;
  std::optional<Candidate> score, mask, prob, sink, weight;
};

} // namespace

std::vector<ModChoice> traceMods(Tracer& tracer, const Ast& ast, llvm::ArrayRef<const Expr*> picks) {
  Mods mods(tracer);
  mods.run(ast, picks);
  return mods.choices(ast.body);
}

void warnOfUnused(Tracer& tracer, const Ast& ast) {
  const auto isMentioned = [&](llvm::StringRef name) { return usageOf(ast.body, name).isMentioned; };
  for (auto [name, loc] : tracer.declarations) {
    if (isMentioned(name)) continue;
    // It may have been declared for an extent.
    const auto isFor = [&](const ir::Extent& extent) {
      return extent.isNamed && extent.value >= ir::kBuiltinDims &&
             isMentioned(tracer.module.dims[size_t(extent.value)]);
    };
    const bool binds = llvm::any_of(tracer.module.tensors, [&, name = name](const ir::TensorCapture& tensor) {
      return tensor.name == name && llvm::any_of(tensor.shape, isFor);
    });
    if (!binds) tracer.diagnostics.warn(loc, diag::unusedCapture, std::string_view(name));
  }
}

} // namespace attnc::dsl
