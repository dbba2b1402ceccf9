// Climbs from the use until something determines the type: a comparison, a sum with the score, a place that takes a
// condition. A sum or a product with an index only suggests a type, which counts if nothing stronger follows.
#include "dsl/tracing/usage_type.h"

#include "dsl/builtins/builtins.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringSwitch.h>

namespace attnc::dsl {

namespace {

using llvm::cast;
using llvm::dyn_cast;
using MaybeType = std::optional<UsedAs>;

constexpr size_t kMaxClimb = 64; // steps from a use to what determines its type
constexpr int kMaxDepth = 8;     // depth of operands that are examined

Role roleOfName(llvm::StringRef name) {
  return llvm::StringSwitch<Role>(name)
      .Case("score", Role::Score)
      .Cases("b", "batch", "batch_idx", Role::Batch)
      .Cases("h", "head", "head_idx", Role::Head)
      .Cases("q", "q_idx", "token_q", Role::Row)
      .Cases("k", "kv", "kv_idx", "k_idx", "token_kv", Role::Column)
      .Default(Role::None);
}

/// Returns the last name of `where`, `torch.where`, `x.where`.
llvm::StringRef calleeName(const CallExpr& call) {
  if (const auto* name = dyn_cast<NameExpr>(call.callee)) return name->name;
  if (const auto* member = dyn_cast<AttributeExpr>(call.callee)) return member->name;
  return "";
}

class Typer {
public:
  Typer(const UseSite& site, bool isIndexed) : site(site), isIndexed(isIndexed) {}

  /// Guesses the type of the value at site.path[at] from the expressions around it.
  MaybeType climb(size_t at) {
    MaybeType weak; // suggested by a sum or a product with an index
    for (size_t steps = 0; at > 0 && steps < kMaxClimb; --at, ++steps) {
      const Expr* value = site.path[at];
      const Expr& user = *site.path[at - 1];
      bool goesOn = false;
      MaybeType type = typeBy(user, value, weak, goesOn);
      if (!goesOn) return type ? type : weak;
    }
    if (at > 0) return weak;
    if (site.place == Place::Condition) return weak ? weak : UsedAs::Bool;
    if (site.place == Place::Iterable) return weak ? weak : UsedAs::Int;
    bool isMod = site.place == Place::Result && !site.functions.empty();
    if (isMod && requiredParameters(*site.functions.back()) == 5) return UsedAs::Real;
    bool isBare = site.path.size() == 1; // `return flag`
    if (isMod && requiredParameters(*site.functions.back()) == 4 && !weak && !(isBare && !isIndexed))
      return UsedAs::Bool;
    return weak;
  }

  bool steers = false;

private:
  /// Guesses the type of the other operand.
  MaybeType typeOf(const Expr& expr, int depth = 0) const {
    if (depth > kMaxDepth) return std::nullopt;
    auto joined = [&](const Expr& a, const Expr& b) -> MaybeType {
      MaybeType x = typeOf(a, depth + 1), y = typeOf(b, depth + 1);
      if (!x || !y) return x == UsedAs::Real || y == UsedAs::Real ? MaybeType(UsedAs::Real) : std::nullopt;
      return std::max(*x, *y);
    };
    switch (expr.kind) {
    case ExprKind::Bool:
    case ExprKind::BoolOp:
    case ExprKind::Compare: return UsedAs::Bool;
    case ExprKind::Int: return UsedAs::Int;
    case ExprKind::Float: return UsedAs::Real;
    case ExprKind::Name: {
      Role role = site.roleOf(cast<NameExpr>(expr).name);
      if (role == Role::None) return std::nullopt;
      return role == Role::Score ? UsedAs::Real : UsedAs::Int;
    }
    case ExprKind::Unary: return typeOf(*cast<UnaryExpr>(expr).operand, depth + 1);
    case ExprKind::Binary:
      if (cast<BinaryExpr>(expr).op == BinaryOp::Div) return UsedAs::Real;
      return joined(*cast<BinaryExpr>(expr).left, *cast<BinaryExpr>(expr).right);
    case ExprKind::Conditional: return joined(*cast<ConditionalExpr>(expr).yes, *cast<ConditionalExpr>(expr).no);
    case ExprKind::Call: {
      const auto& call = cast<CallExpr>(expr);
      llvm::StringRef callee = calleeName(call);
      if (callee == "where" && call.arguments.size() == 3) return joined(*call.arguments[1], *call.arguments[2]);
      if ((callee == "abs" || callee == "clamp") && !call.arguments.empty())
        return typeOf(*call.arguments[0], depth + 1);
      return std::nullopt;
    }
    default: return std::nullopt; // only the obvious cases are listed
    }
  }

  MaybeType typeBy(const Expr& user, const Expr* value, MaybeType& weak, bool& goesOn) {
    switch (user.kind) {
    case ExprKind::Sequence:
    case ExprKind::Starred:
    case ExprKind::Slice: goesOn = true; return std::nullopt;
    case ExprKind::Subscript:
      if (cast<SubscriptExpr>(user).index == value) return UsedAs::Int;
      return std::nullopt;
    case ExprKind::BoolOp: return UsedAs::Bool;
    case ExprKind::Unary: {
      UnaryOp op = cast<UnaryExpr>(user).op;
      if (op == UnaryOp::Not || op == UnaryOp::Invert) return UsedAs::Bool;
      goesOn = true;
      return std::nullopt;
    }
    case ExprKind::Compare: return typeByComparison(cast<CompareExpr>(user), value);
    case ExprKind::Conditional:
      goesOn = cast<ConditionalExpr>(user).condition != value;
      if (goesOn) return std::nullopt;
      steers = true;
      return UsedAs::Bool;
    case ExprKind::Binary: return typeByOperator(cast<BinaryExpr>(user), value, weak, goesOn);
    case ExprKind::Attribute: { // a method
      llvm::StringRef method = cast<AttributeExpr>(user).name;
      if (method == "bool" || method == "to") return UsedAs::Bool;
      if (method == "int" || method == "long") return UsedAs::Int;
      if (method == "float") return UsedAs::Real;
      goesOn = true;
      return std::nullopt;
    }
    case ExprKind::Call: return typeByCall(cast<CallExpr>(user), value, goesOn);
    default: return std::nullopt; // lambdas and comprehensions
    }
  }

  MaybeType typeByComparison(const CompareExpr& user, const Expr* value) const {
    bool isBool = false;
    auto isReal = [&](const Expr* operand) {
      if (operand == value) return false;
      MaybeType type = typeOf(*operand);
      isBool = isBool || type == UsedAs::Bool;
      return type == UsedAs::Real;
    };
    bool real = isReal(user.first) || llvm::any_of(user.rest, [&](auto& rest) { return isReal(rest.second); });
    return real ? UsedAs::Real : isBool ? UsedAs::Bool : UsedAs::Int;
  }

  MaybeType typeByOperator(const BinaryExpr& user, const Expr* value, MaybeType& weak, bool& goesOn) const {
    MaybeType other = typeOf(user.left == value ? *user.right : *user.left);
    switch (user.op) {
    case BinaryOp::And:
    case BinaryOp::Or:
    case BinaryOp::Xor: return other == UsedAs::Int ? UsedAs::Int : UsedAs::Bool;
    case BinaryOp::Shl:
    case BinaryOp::Shr:
    case BinaryOp::FloorDiv:
    case BinaryOp::Mod: return other == UsedAs::Real ? UsedAs::Real : UsedAs::Int;
    case BinaryOp::Pow:
    case BinaryOp::MatMul: return UsedAs::Real;
    case BinaryOp::Add:
    case BinaryOp::Sub:
    case BinaryOp::Mul:
    case BinaryOp::Div: break;
    }
    if (other == UsedAs::Real) return UsedAs::Real;
    if (other && !weak) weak = user.op == BinaryOp::Add || user.op == BinaryOp::Sub ? UsedAs::Int : UsedAs::Real;
    goesOn = true;
    return std::nullopt;
  }

  MaybeType typeByCall(const CallExpr& user, const Expr* value, bool& goesOn) {
    goesOn = user.callee == value; // a call of a method of the value
    if (goesOn) return std::nullopt;
    llvm::StringRef callee = calleeName(user);
    bool isFirst = !user.arguments.empty() && user.arguments[0] == value;
    if (callee == "range") {
      steers = true;
      return UsedAs::Int;
    }
    if (isFirst && (callee == "where" || callee == "masked_fill")) return UsedAs::Bool;
    if (std::string_view(callee).starts_with("logical_")) return UsedAs::Bool;
    for (const Builtin& row : floatBuiltins())
      if (callee == row.name) return UsedAs::Real;
    for (const Expr* argument : user.arguments)
      if (argument != value && typeOf(*argument) == UsedAs::Real) return UsedAs::Real;
    goesOn = findBuiltin(callee, kPython | kTorch);
    return std::nullopt;
  }

  const UseSite& site;
  const bool isIndexed;
};

} // namespace

size_t requiredParameters(const FunctionNode& function) {
  return size_t(llvm::count_if(function.parameters, [](const Parameter& parameter) {
    return parameter.kind == ParameterKind::Positional && !parameter.defaultValue;
  }));
}

Role UseSite::roleOf(llvm::StringRef variable) const {
  for (const FunctionNode* function : llvm::reverse(functions)) {
    size_t required = requiredParameters(*function);
    for (size_t i = 0; i < function->parameters.size(); ++i) {
      if (function->parameters[i].name != variable) continue;
      if (required == 5 && i < 5) return Role(i + 1);
      if (required == 4 && i < 4) return Role(i + 2);
      return roleOfName(variable);
    }
    if (function->locals.contains(variable)) return Role::None;
  }
  bool isBare = functions.empty() && (variable == "score" || variable == "b" || variable == "h" ||
                                      variable == "q_idx" || variable == "kv_idx");
  return isBare ? roleOfName(variable) : Role::None;
}

UseType typeOfUse(const UseSite& site, size_t at, bool isIndexed) {
  Typer typer(site, isIndexed);
  MaybeType type = typer.climb(at);
  return {type, typer.steers};
}

} // namespace attnc::dsl
