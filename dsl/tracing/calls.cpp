// In: a callee and its arguments. Out: the result of the call. Parameters are matched as in Python.
#include "dsl/objects/arithmetic.h"
#include "dsl/objects/arrays.h"
#include "dsl/objects/comparison.h"
#include "dsl/objects/repairs.h"
#include "dsl/objects/scalars.h"
#include "dsl/objects/tensors.h"
#include "dsl/tracing/depth.h"
#include "dsl/tracing/tracer.h"

#include <llvm/ADT/ScopeExit.h>

namespace attnc::dsl {

namespace {

/// Returns "`f(x, y=)`: ..." for hints.
std::string signatureOf(const FunctionNode& function) {
  std::string parameters;
  for (const Parameter& parameter : function.parameters) {
    const char* stars = parameter.kind == ParameterKind::Variadic   ? "*"
                        : parameter.kind == ParameterKind::Keywords ? "**"
                                                                    : "";
    parameters +=
        (parameters.empty() ? "" : ", ") + (stars + parameter.name.str()) + (parameter.defaultValue ? "=" : "");
  }
  return "it is `" + (function.name.empty() ? "lambda" : function.name.str()) + "(" + parameters + ")`";
}

std::string signatureOf(const Builtin& builtin) {
  return std::string("it is `") + builtin.name + "(" + builtin.parameters + ")`";
}

} // namespace

Object Tracer::call(Object callee, const Arguments& arguments) {
  if (callee.is<const Function*>()) return callFunction(*callee.as<const Function*>(), arguments);
  if (callee.is<const Builtin*>()) return callBuiltin(*callee.as<const Builtin*>(), arguments);
  if (callee.is<const ModList*>()) return callMods(*callee.as<const ModList*>(), arguments);
  if (callee.is<const Method*>()) {
    Arguments withSelf = arguments;
    withSelf.positional.insert(withSelf.positional.begin(), callee.as<const Method*>()->self);
    return callBuiltin(*callee.as<const Method*>()->builtin, withSelf);
  }
  if (callee.is<const Partial*>()) {
    const Partial& partial = *callee.as<const Partial*>();
    charge(1 + partial.arguments.size());
    Arguments all;
    all.positional.append(partial.arguments.begin(), partial.arguments.end());
    all.positional.append(arguments.positional.begin(), arguments.positional.end());
    all.keywords = arguments.keywords;
    for (auto& keyword : partial.keywords)
      if (llvm::none_of(all.keywords, [&](auto& given) { return given.first == keyword.first; }))
        all.keywords.push_back(keyword);
    Deeper deeper(*this);
    return call(partial.callee, all);
  }
  if (callee.is<Class*>()) return instantiate(*callee.as<Class*>(), arguments);
  if (callee.is<Instance*>()) {
    Instance& instance = *callee.as<Instance*>();
    for (const char* name : {"__call__", "forward"})
      if (auto method = instanceMember(instance, name)) {
        Deeper deeper(*this);
        return call(*method, arguments);
      }
  }
  if (callee.is<const Deferred*>()) force(*callee.as<const Deferred*>());
  fail(diag::notCallable, describe(callee), callRepair(*this, callee));
}

Object Tracer::callFunction(const Function& function, const Arguments& arguments) {
  if (callDepth >= kMaxCallDepth) fail(diag::callsTooDeep, Count(kMaxCallDepth));
  charge(4);
  called.insert(function.node);
  Deeper deeper(*this);
  if (function.node->unsupported) failSyntax(function.node->unsupported);
  Scope* inner = heap.make<Scope>(function.closure, function.node, function.owner);
  bindParameters(function, arguments, *inner);
  Loc caller = at;
  Scope* outer = std::exchange(scope, inner);
  ++callDepth;
  auto leave = llvm::make_scope_exit([&] {
    scope = outer;
    --callDepth;
  });
  if (function.node->result) {
    Object result = eval(*function.node->result);
    resultLoc = function.node->result->loc;
    return result;
  }
  Flow flow = run(function.node->body);
  at = caller;
  return flow == Flow::Return ? returned : Object(NoneObject{});
}

void Tracer::bindParameters(const Function& function, const Arguments& arguments, Scope& into) {
  std::string_view name = function.node->name;
  size_t next = 0;
  bool takesRest = false;
  const Parameter* keywords = nullptr;
  for (const Parameter& parameter : function.node->parameters) {
    if (parameter.kind == ParameterKind::Positional && next < arguments.positional.size())
      into.names[parameter.name] = arguments.positional[next++];
    if (parameter.kind == ParameterKind::Keywords) keywords = &parameter;
    if (parameter.kind != ParameterKind::Variadic) continue;
    takesRest = true;
    into.names[parameter.name] =
        makeSequence(/*isList=*/false, {arguments.positional.begin() + next, arguments.positional.end()});
  }
  if (next < arguments.positional.size() && !takesRest)
    fail(diag::tooManyArguments, name, Count(next), Count(arguments.positional.size()), signatureOf(*function.node));
  auto* rest = keywords ? heap.make<Dict>() : nullptr;
  if (keywords) into.names[keywords->name] = rest;
  for (auto& [key, value] : arguments.keywords) {
    bool isKnown = llvm::any_of(function.node->parameters, [&, key = key](const Parameter& parameter) {
      return parameter.name == key && parameter.kind != ParameterKind::Variadic &&
             parameter.kind != ParameterKind::Keywords;
    });
    if (!isKnown && rest) {
      rest->items.emplace_back(makeStr(key.str()), value);
      continue;
    }
    if (!isKnown) fail(diag::unknownArgument, name, std::string_view(key), signatureOf(*function.node));
    if (!into.names.try_emplace(key, value).second) fail(diag::repeatedArgument, std::string_view(key));
  }
  for (size_t i = 0; i < function.node->parameters.size(); ++i) {
    const Parameter& parameter = function.node->parameters[i];
    auto bound = into.names.find(parameter.name);
    const bool isGiven = bound != into.names.end();
    if (isGiven && !bound->second.is<const Deferred*>()) continue;
    // A declaration replaces an argument that is missing or cannot be evaluated.
    std::optional<Object> capture;
    if (isGiven || !parameter.defaultValue) capture = parameterCapture(parameter);
    if (capture) into.names[parameter.name] = *capture;
    if (isGiven || capture) continue;
    if (!parameter.defaultValue)
      fail(diag::missingArgument, name, std::string_view(parameter.name),
           callDepth == 0 && isInMod ? "declare it at module level, `" + parameter.name.str() +
                                           ": int` for a number, and leave the parameter out"
                                     : signatureOf(*function.node));
    into.names[parameter.name] = function.defaults[i];
  }
}

Object Tracer::callMods(const ModList& list, const Arguments& arguments) {
  Deeper deeper(*this);
  std::vector<Object> results;
  Loc caller = at;
  for (Object mod : list.mods) {
    charge(1);
    results.push_back(
        scalar(*this, call(mod, arguments), list.which ? "a mod of choice" : "a mask of and_masks or or_masks"));
    at = caller;
  }
  if (list.which) return choose(list, results, arguments);
  const bool isAnd = llvm::StringRef(list.name) == "and_masks";
  if (results.empty()) return isAnd;
  Object result = results[0];
  for (Object value : llvm::ArrayRef(results).drop_front())
    result = binary(*this, isAnd ? BinaryOp::And : BinaryOp::Or, result, value);
  return result;
}

/// Returns the result of the mod that the sequence has. If it names none, all its scores are masked in the end.
Object Tracer::choose(const ModList& list, llvm::ArrayRef<Object> results, const Arguments& arguments) {
  const size_t count = arguments.positional.size();
  if (count < 4 || count > 5 || !arguments.keywords.empty())
    fail(diag::badArgument, "choice(...)", "`b, h, q_idx, kv_idx`, or a score and these",
         std::to_string(count + arguments.keywords.size()) + " arguments");
  module.tensors[list.which->number].addChoices(int64_t(results.size()));
  const Object taken = readElement(*this, *indexAxis(*this, *list.which, 0, arguments.positional[count - 4]));
  Object result = results.back();
  for (size_t i = results.size() - 1; i-- > 0;)
    result = select(*this, compare(*this, CompareOp::Eq, taken, int64_t(i)), results[i], result);
  return result;
}

// Builtins ----------------------------------------------------------------------------------------------------------

namespace {

struct BuiltinParameter {
  llvm::StringRef name;
  bool isOptional = false, isRest = false, isKeywords = false;
};

llvm::SmallVector<BuiltinParameter, 6> parametersOf(const Builtin& builtin) {
  llvm::SmallVector<llvm::StringRef, 6> pieces;
  llvm::StringRef(builtin.parameters).split(pieces, ',', -1, /*KeepEmpty=*/false);
  llvm::SmallVector<BuiltinParameter, 6> parameters;
  for (llvm::StringRef piece : pieces) {
    piece = piece.trim();
    BuiltinParameter parameter;
    parameter.isKeywords = piece.consume_front("**");
    parameter.isRest = parameter.isKeywords || piece.consume_front("*");
    parameter.isOptional = piece.consume_back("=");
    parameter.name = piece;
    parameters.push_back(parameter);
  }
  return parameters;
}

/// Returns torch's name of a parameter that has two names.
llvm::StringRef canonical(llvm::StringRef keyword) {
  if (keyword == "axis") return "dim";
  if (keyword == "self") return "input";
  return keyword;
}

Bound bindBuiltin(Context& context, const Builtin& builtin, const Arguments& arguments) {
  Bound bound{&builtin};
  auto parameters = parametersOf(builtin);
  size_t next = 0;
  for (const BuiltinParameter& parameter : parameters) {
    bound.values.emplace_back();
    if (parameter.isKeywords) continue;
    if (parameter.isRest) bound.rest.assign(arguments.positional.begin() + next, arguments.positional.end());
    if (parameter.isRest)
      next = arguments.positional.size();
    else if (next < arguments.positional.size())
      bound.values.back() = arguments.positional[next++];
  }
  if (next < arguments.positional.size())
    context.fail(diag::tooManyArguments, builtin.name, Count(next), Count(arguments.positional.size()),
                 signatureOf(builtin));
  for (auto& [key, value] : arguments.keywords) {
    size_t i = 0;
    while (i < parameters.size() && (parameters[i].isRest || parameters[i].name != canonical(key))) ++i;
    if (i == parameters.size() && parameters.back().isKeywords) {
      bound.keywords.emplace_back(key, value);
      continue;
    }
    if (i == parameters.size())
      context.fail(diag::unknownArgument, builtin.name, std::string_view(key), signatureOf(builtin));
    if (bound.values[i]) context.fail(diag::repeatedArgument, std::string_view(key));
    bound.values[i] = value;
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (bound.values[i] && parameters[i].isOptional && bound.values[i]->is<NoneObject>()) bound.values[i].reset();
    if (!bound.values[i] && !parameters[i].isOptional && !parameters[i].isRest)
      context.fail(diag::missingArgument, builtin.name, std::string_view(parameters[i].name), signatureOf(builtin));
  }
  return bound;
}

} // namespace

Object Tracer::callBuiltin(const Builtin& builtin, const Arguments& arguments) {
  Deeper deeper(*this);
  for (Object argument : arguments.positional)
    if (const Deferred* why = whyNot(argument); why && !(builtin.where & kAnything)) force(*why);
  for (auto& [name, argument] : arguments.keywords)
    if (const Deferred* why = whyNot(argument); why && !(builtin.where & kAnything)) force(*why);
  Bound bound = bindBuiltin(*this, builtin, arguments);
  if (!(builtin.where & kElementwise)) return builtin.run(*this, bound);
  llvm::SmallVector<Object, 6> given;
  for (auto& value : bound.values)
    if (value) given.push_back(*value = decay(*this, *value));
  if (llvm::none_of(given, [](Object value) { return value.isArrayLike(); })) return builtin.run(*this, bound);
  for (size_t i = 0; builtin.where & kArithmetic && i < given.size(); ++i)
    if (given[i].isArrayLike() && holdsInts(*this, given[i]))
      for (Object& value : given)
        if (value.isNumber() && isInt(*this, value) && value.ints != Ints::Python)
          value = cast(*this, value, dtypeOf(*this, given[i]));
  return broadcast(*this, given, [&](llvm::ArrayRef<Object> row) {
    Bound one = bound;
    size_t next = 0;
    for (auto& value : one.values)
      if (value) value = row[next++];
    return builtin.run(*this, one);
  });
}

} // namespace attnc::dsl
