// A walk over the tree that keeps the way from the statement down to the name; from there it climbs back until
// something tells the type: a comparison, a sum with the score, a place that takes a condition.
#include "dsl/usage.h"

#include "dsl/builtins.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringSwitch.h>

namespace attnc::dsl {

namespace {

using llvm::cast;
using llvm::dyn_cast;
using Type = Usage::Type;
using MaybeType = std::optional<Type>;

constexpr size_t kMaxClimb = 64; // steps from a use to what tells its type
constexpr int kMaxDepth = 8;     // of an operand that is looked into

/// What the parameters of a mod stand for.
enum class Role : uint8_t { None, Score, Batch, Head, Row, Column };

Role roleOfName(llvm::StringRef name) {
  return llvm::StringSwitch<Role>(name)
      .Case("score", Role::Score)
      .Cases("b", "batch", "batch_idx", Role::Batch)
      .Cases("h", "head", "head_idx", Role::Head)
      .Cases("q", "q_idx", "token_q", Role::Row)
      .Cases("k", "kv", "kv_idx", "k_idx", "token_kv", Role::Column)
      .Default(Role::None);
}

const char* extentOf(Role role) {
  switch (role) {
  case Role::Batch: return "B";
  case Role::Head: return "H";
  case Role::Row: return "Q_LEN";
  case Role::Column: return "KV_LEN";
  case Role::None:
  case Role::Score: break;
  }
  return "";
}

size_t requiredParameters(const FunctionNode& function) {
  return size_t(llvm::count_if(function.parameters, [](const Parameter& parameter) {
    return parameter.kind == ParameterKind::Positional && !parameter.defaultValue;
  }));
}

/// The last name of `where`, `torch.where`, `x.where`.
llvm::StringRef calleeName(const CallExpr& call) {
  if (const auto* name = dyn_cast<NameExpr>(call.callee)) return name->name;
  if (const auto* member = dyn_cast<AttributeExpr>(call.callee)) return member->name;
  return "";
}

class Uses {
public:
  explicit Uses(llvm::StringRef name) : name(name) {}

  Usage read(const Block& text) {
    visit(text);
    if (!found.type) found.type = usual;
    return std::move(found);
  }

private:
  // ---- The way down ----

  void visit(const Block& body) {
    for (const Stmt* stmt : body) visit(*stmt);
  }

  void visit(const Stmt& stmt) {
    switch (stmt.kind) {
    case StmtKind::Expression: return visitRoot(cast<ExpressionStmt>(stmt).value, Place::Value);
    case StmtKind::Assign: return visitRoot(cast<AssignStmt>(stmt).value, Place::Value);
    case StmtKind::AugAssign: return visitRoot(cast<AugAssignStmt>(stmt).value, Place::Value);
    case StmtKind::AnnAssign: return visitRoot(cast<AnnAssignStmt>(stmt).value, Place::Value);
    case StmtKind::Return: return visitRoot(cast<ReturnStmt>(stmt).value, Place::Result);
    case StmtKind::Assert: return visitRoot(cast<AssertStmt>(stmt).condition, Place::Value);
    case StmtKind::If:
      for (auto& [condition, body] : cast<IfStmt>(stmt).clauses) {
        visitRoot(condition, Place::Condition);
        visit(body);
      }
      return visit(cast<IfStmt>(stmt).otherwise);
    case StmtKind::For:
      visitRoot(cast<ForStmt>(stmt).iterable, Place::Iterable);
      visit(cast<ForStmt>(stmt).body);
      return visit(cast<ForStmt>(stmt).otherwise);
    case StmtKind::While:
      visitRoot(cast<WhileStmt>(stmt).condition, Place::Condition);
      visit(cast<WhileStmt>(stmt).body);
      return visit(cast<WhileStmt>(stmt).otherwise);
    case StmtKind::Def: return visitFunction(*cast<DefStmt>(stmt).function);
    case StmtKind::Break:
    case StmtKind::Continue:
    case StmtKind::Pass:
    case StmtKind::Import:
    case StmtKind::Raise: return;
    }
  }

  void visitFunction(const FunctionNode& function) {
    for (const Parameter& parameter : function.parameters) {
      if (parameter.name == name) return; // another variable
      visitRoot(parameter.defaultValue, Place::Value);
    }
    functions.push_back(&function);
    visit(function.body);
    visitRoot(function.result, Place::Result);
    functions.pop_back();
  }

  /// Where an expression stands in its statement.
  enum class Place : uint8_t { Value, Result, Condition, Iterable };

  void visitRoot(const Expr* expr, Place where) {
    if (!expr) return;
    Place outerPlace = std::exchange(place, where);
    std::vector<const Expr*> outerPath = std::exchange(path, {});
    visit(expr);
    path = std::move(outerPath);
    place = outerPlace;
  }

  void visit(const Expr* expr) {
    if (!expr) return;
    path.push_back(expr);
    visitParts(*expr);
    path.pop_back();
  }

  void visitParts(const Expr& expr) {
    switch (expr.kind) {
    case ExprKind::Name:
      if (cast<NameExpr>(expr).name == name) use();
      return;
    case ExprKind::Unary: return visit(cast<UnaryExpr>(expr).operand);
    case ExprKind::Binary: { // a chain of left operands may have any length
      size_t outer = path.size();
      const Expr* innermost = &expr;
      for (; innermost->kind == ExprKind::Binary; innermost = cast<BinaryExpr>(innermost)->left)
        path.push_back(innermost);
      visit(innermost);
      for (; path.size() > outer; path.pop_back()) visit(cast<BinaryExpr>(path.back())->right);
      return;
    }
    case ExprKind::BoolOp:
      for (const Expr* operand : cast<BoolOpExpr>(expr).operands) visit(operand);
      return;
    case ExprKind::Compare:
      visit(cast<CompareExpr>(expr).first);
      for (auto& [op, operand] : cast<CompareExpr>(expr).rest) visit(operand);
      return;
    case ExprKind::Conditional:
      visit(cast<ConditionalExpr>(expr).condition);
      visit(cast<ConditionalExpr>(expr).yes);
      return visit(cast<ConditionalExpr>(expr).no);
    case ExprKind::Call:
      visit(cast<CallExpr>(expr).callee);
      for (const Expr* argument : cast<CallExpr>(expr).arguments) visit(argument);
      for (const Keyword& keyword : cast<CallExpr>(expr).keywords) visit(keyword.value);
      return;
    case ExprKind::Attribute: return visit(cast<AttributeExpr>(expr).base);
    case ExprKind::Subscript: visit(cast<SubscriptExpr>(expr).base); return visit(cast<SubscriptExpr>(expr).index);
    case ExprKind::Slice:
      visit(cast<SliceExpr>(expr).start);
      visit(cast<SliceExpr>(expr).stop);
      return visit(cast<SliceExpr>(expr).step);
    case ExprKind::Sequence:
      for (const Expr* item : cast<SequenceExpr>(expr).items) visit(item);
      return;
    case ExprKind::Lambda: return visitFunction(*cast<LambdaExpr>(expr).function);
    case ExprKind::Comprehension:
      for (const ComprehensionClause& clause : cast<ComprehensionExpr>(expr).clauses) {
        visitRoot(clause.iterable, Place::Iterable);
        for (const Expr* condition : clause.conditions) visitRoot(condition, Place::Condition);
      }
      return visit(cast<ComprehensionExpr>(expr).element);
    case ExprKind::Starred: return visit(cast<StarredExpr>(expr).value);
    case ExprKind::None:
    case ExprKind::Ellipsis:
    case ExprKind::Bool:
    case ExprKind::Int:
    case ExprKind::Float:
    case ExprKind::String: return;
    }
  }

  // ---- A use: its indices, then its type ----

  /// `path` ends with the name.
  void use() {
    size_t at = path.size() - 1;
    const Expr* whole = path[at];
    llvm::SmallVector<const Expr*> indices;
    while (at > 0 && path[at - 1]->kind == ExprKind::Subscript && cast<SubscriptExpr>(path[at - 1])->base == whole) {
      const Expr* index = cast<SubscriptExpr>(path[at - 1])->index;
      const auto* several = dyn_cast<SequenceExpr>(index);
      if (several && !several->isList)
        indices.append(several->items.begin(), several->items.end());
      else
        indices.push_back(index);
      whole = path[--at];
    }
    for (size_t axis = 0; axis < indices.size(); ++axis) addDim(axis, *indices[axis]);
    const Expr* user = at > 0 ? path[at - 1] : nullptr;
    if (user && indices.empty()) {
      if (const auto* call = dyn_cast<CallExpr>(user); call && call->callee == whole) {
        found.isCalled = true;
        return;
      }
      if (const auto* member = dyn_cast<AttributeExpr>(user); member && !findBuiltin(member->name, kMethod)) {
        if (member->name != "shape" && member->name != "dtype" && member->name != "device")
          found.member = member->name.str();
        return;
      }
    }
    if (place == Place::Condition || place == Place::Iterable) found.steers = true;
    if (!found.type) found.type = climb(at);
    if (!indices.empty()) usual = isInScore() ? Type::Real : Type::Int;
  }

  bool isInScore() const {
    return llvm::any_of(functions, [](const FunctionNode* function) { return requiredParameters(*function) == 5; });
  }

  void addDim(size_t axis, const Expr& index) {
    const auto* position = dyn_cast<NameExpr>(&index);
    std::string extent = position ? extentOf(roleOf(position->name)) : "";
    if (axis >= found.dims.size()) return found.dims.push_back(extent);
    std::string& known = found.dims[axis];
    bool isSame = known == extent || (known == "KV_LEN" && extent == "Q_LEN");
    if (!isSame) known = known == "Q_LEN" && extent == "KV_LEN" ? extent : "";
  }

  Role roleOf(llvm::StringRef variable) const {
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

  /// What an operand beside the name is.
  MaybeType typeOf(const Expr& expr, int depth = 0) const {
    if (depth > kMaxDepth) return std::nullopt;
    auto joined = [&](const Expr& a, const Expr& b) -> MaybeType {
      MaybeType x = typeOf(a, depth + 1), y = typeOf(b, depth + 1);
      if (!x || !y) return x == Type::Real || y == Type::Real ? MaybeType(Type::Real) : std::nullopt;
      return std::max(*x, *y);
    };
    switch (expr.kind) {
    case ExprKind::Bool:
    case ExprKind::BoolOp:
    case ExprKind::Compare: return Type::Bool;
    case ExprKind::Int: return Type::Int;
    case ExprKind::Float: return Type::Real;
    case ExprKind::Name: {
      Role role = roleOf(cast<NameExpr>(expr).name);
      if (role == Role::None) return std::nullopt;
      return role == Role::Score ? Type::Real : Type::Int;
    }
    case ExprKind::Unary: return typeOf(*cast<UnaryExpr>(expr).operand, depth + 1);
    case ExprKind::Binary:
      if (cast<BinaryExpr>(expr).op == BinaryOp::Div) return Type::Real;
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
    default: return std::nullopt; // what can be told at a glance is listed
    }
  }

  /// The type of the value at path[at], from what it is combined with further out.
  MaybeType climb(size_t at) {
    MaybeType weak; // what a sum or a product with an index suggests
    for (size_t steps = 0; at > 0 && steps < kMaxClimb; --at, ++steps) {
      const Expr* value = path[at];
      const Expr& user = *path[at - 1];
      bool goesOn = false;
      MaybeType type = typeBy(user, value, weak, goesOn);
      if (!goesOn) return type ? type : weak;
    }
    if (at > 0) return weak;
    if (place == Place::Condition) return weak ? weak : Type::Bool;
    if (place == Place::Iterable) return weak ? weak : Type::Int;
    bool isMod = place == Place::Result && !functions.empty();
    if (isMod && requiredParameters(*functions.back()) == 5) return Type::Real;
    bool isBare = path.size() == 1; // `return flag`
    if (isMod && requiredParameters(*functions.back()) == 4 && !weak && !(isBare && found.dims.empty()))
      return Type::Bool;
    return weak;
  }

  MaybeType typeBy(const Expr& user, const Expr* value, MaybeType& weak, bool& goesOn) {
    switch (user.kind) {
    case ExprKind::Sequence:
    case ExprKind::Starred:
    case ExprKind::Slice: goesOn = true; return std::nullopt;
    case ExprKind::Subscript:
      if (cast<SubscriptExpr>(user).index == value) return Type::Int;
      return std::nullopt;
    case ExprKind::BoolOp: return Type::Bool;
    case ExprKind::Unary: {
      UnaryOp op = cast<UnaryExpr>(user).op;
      if (op == UnaryOp::Not || op == UnaryOp::Invert) return Type::Bool;
      goesOn = true;
      return std::nullopt;
    }
    case ExprKind::Compare: return typeByComparison(cast<CompareExpr>(user), value);
    case ExprKind::Conditional:
      goesOn = cast<ConditionalExpr>(user).condition != value;
      if (goesOn) return std::nullopt;
      found.steers = true;
      return Type::Bool;
    case ExprKind::Binary: return typeByOperator(cast<BinaryExpr>(user), value, weak, goesOn);
    case ExprKind::Attribute: { // a method
      llvm::StringRef method = cast<AttributeExpr>(user).name;
      if (method == "bool" || method == "to") return Type::Bool;
      if (method == "int" || method == "long") return Type::Int;
      if (method == "float") return Type::Real;
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
      isBool = isBool || type == Type::Bool;
      return type == Type::Real;
    };
    bool real = isReal(user.first) || llvm::any_of(user.rest, [&](auto& rest) { return isReal(rest.second); });
    return real ? Type::Real : isBool ? Type::Bool : Type::Int;
  }

  MaybeType typeByOperator(const BinaryExpr& user, const Expr* value, MaybeType& weak, bool& goesOn) const {
    MaybeType other = typeOf(user.left == value ? *user.right : *user.left);
    switch (user.op) {
    case BinaryOp::And:
    case BinaryOp::Or:
    case BinaryOp::Xor: return other == Type::Int ? Type::Int : Type::Bool;
    case BinaryOp::Shl:
    case BinaryOp::Shr:
    case BinaryOp::FloorDiv:
    case BinaryOp::Mod: return other == Type::Real ? Type::Real : Type::Int;
    case BinaryOp::Pow:
    case BinaryOp::MatMul: return Type::Real;
    case BinaryOp::Add:
    case BinaryOp::Sub:
    case BinaryOp::Mul:
    case BinaryOp::Div: break;
    }
    if (other == Type::Real) return Type::Real;
    if (other && !weak) weak = user.op == BinaryOp::Add || user.op == BinaryOp::Sub ? Type::Int : Type::Real;
    goesOn = true;
    return std::nullopt;
  }

  MaybeType typeByCall(const CallExpr& user, const Expr* value, bool& goesOn) {
    goesOn = user.callee == value; // the call of a method of the value
    if (goesOn) return std::nullopt;
    llvm::StringRef callee = calleeName(user);
    bool isFirst = !user.arguments.empty() && user.arguments[0] == value;
    if (callee == "range") {
      found.steers = true;
      return Type::Int;
    }
    if (isFirst && (callee == "where" || callee == "masked_fill")) return Type::Bool;
    if (std::string_view(callee).starts_with("logical_")) return Type::Bool;
    for (const Builtin& row : floatBuiltins())
      if (callee == row.name) return Type::Real;
    for (const Expr* argument : user.arguments)
      if (argument != value && typeOf(*argument) == Type::Real) return Type::Real;
    goesOn = findBuiltin(callee, kPython | kTorch);
    return std::nullopt;
  }

  llvm::StringRef name;
  Usage found;
  MaybeType usual;                                     // of an element whose use tells nothing
  llvm::SmallVector<const FunctionNode*, 4> functions; // around the place of the walk
  std::vector<const Expr*> path;                       // from the statement's expression down
  Place place = Place::Value;
};

} // namespace

Usage usageOf(const Block& text, llvm::StringRef name) { return Uses(name).read(text); }

std::string declarationOf(llvm::StringRef name, const Usage& usage) {
  if (usage.dims.empty()) {
    if (!usage.type) return "";
    return name.str() + ": " + (*usage.type == Type::Bool ? "bool" : *usage.type == Type::Int ? "int" : "float");
  }
  std::string text = name.str() + ": " +
                     (usage.type == Type::Bool  ? "bool"
                      : usage.type == Type::Int ? "i32"
                                                : "f32") +
                     "[";
  const char* kFree[] = {"N", "M", "L", "P", "R", "S"};
  size_t free = 0;
  for (const std::string& dim : usage.dims)
    text += (text.back() == '[' ? "" : ", ") + (dim.empty() ? kFree[free++ % std::size(kFree)] : dim);
  return text + "]";
}

} // namespace attnc::dsl
