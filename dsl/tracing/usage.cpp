// Walks the tree and keeps the path from the statement down to the name. usage_type.h guesses the type from that path.
#include "dsl/tracing/usage.h"

#include "dsl/builtins/builtins.h"
#include "dsl/tracing/usage_type.h"

#include <llvm/ADT/STLExtras.h>

namespace attnc::dsl {

namespace {

using llvm::cast;
using llvm::dyn_cast;

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

class Uses : UseSite {
public:
  Uses(llvm::StringRef name, bool asParameter) : name(name), asParameter(asParameter) {}

  Usage read(const Block& text) {
    visit(text);
    if (!found.type) found.type = usual;
    return std::move(found);
  }

private:
  // ---- The walk ----

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
    case StmtKind::Class: return visit(cast<ClassStmt>(stmt).function->body);
    case StmtKind::Try:
      visit(cast<TryStmt>(stmt).body);
      for (const Handler& handler : cast<TryStmt>(stmt).handlers) visit(handler.body);
      visit(cast<TryStmt>(stmt).otherwise);
      return visit(cast<TryStmt>(stmt).finally);
    case StmtKind::With:
      for (auto [context, target] : cast<WithStmt>(stmt).items) visitRoot(context, Place::Value);
      return visit(cast<WithStmt>(stmt).body);
    case StmtKind::Break:
    case StmtKind::Continue:
    case StmtKind::Pass:
    case StmtKind::Import:
    case StmtKind::Del:
    case StmtKind::Unsupported:
    case StmtKind::Raise: return;
    }
  }

  void visitFunction(const FunctionNode& function) {
    for (const Parameter& parameter : function.parameters) {
      if (parameter.name == name) { // another variable
        found.isMentioned = true;
        if (!asParameter) return;
      }
      visitRoot(parameter.defaultValue, Place::Value);
    }
    functions.push_back(&function);
    visit(function.body);
    visitRoot(function.result, Place::Result);
    functions.pop_back();
  }

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
      if (cast<NameExpr>(expr).name == name) {
        found.isMentioned = true;
        use();
      }
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
    case ExprKind::Attribute:
      found.isMentioned |= cast<AttributeExpr>(expr).name == name;
      if (cast<AttributeExpr>(expr).name == name && isSelf(*cast<AttributeExpr>(expr).base)) return use();
      return visit(cast<AttributeExpr>(expr).base);
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
      visit(cast<ComprehensionExpr>(expr).key);
      return visit(cast<ComprehensionExpr>(expr).element);
    case ExprKind::Dict:
      for (auto [key, value] : cast<DictExpr>(expr).items) {
        visit(key);
        visit(value);
      }
      return;
    case ExprKind::Named: return visit(cast<NamedExpr>(expr).value);
    case ExprKind::Starred: return visit(cast<StarredExpr>(expr).value);
    case ExprKind::None:
    case ExprKind::Ellipsis:
    case ExprKind::Bool:
    case ExprKind::Int:
    case ExprKind::Float:
    case ExprKind::Unsupported: return;
    case ExprKind::String: found.isMentioned |= cast<StringExpr>(expr).value == name; return;
    }
  }

  static bool isSelf(const Expr& base) { return base.kind == ExprKind::Name && cast<NameExpr>(base).name == "self"; }

  // ---- A use: its indices, then its type ----

  /// Records a use. `path` ends with the name.
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
    if (llvm::any_of(indices, [](const Expr* index) { return index->kind == ExprKind::Slice; })) return; // not a mod's
    for (size_t axis = 0; axis < indices.size(); ++axis) addDim(axis, *indices[axis]);
    const Expr* user = at > 0 ? path[at - 1] : nullptr;
    if (const auto* call = llvm::dyn_cast_or_null<CallExpr>(user); call && call->callee != whole) {
      const auto* callee = dyn_cast<NameExpr>(call->callee);
      if (callee && (callee->name.contains("create_block_mask") || callee->name.contains("flex_attention")))
        found.isGivenAsMod = true;
    }
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
    UseType tells = typeOfUse(*this, at, !indices.empty());
    if (tells.steers) found.steers = true;
    if (!found.type) found.type = tells.type;
    if (!indices.empty()) usual = isInScore() ? UsedAs::Real : UsedAs::Int;
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

  llvm::StringRef name;
  bool asParameter;
  Usage found;
  std::optional<UsedAs> usual; // type of an element whose use tells nothing
};

} // namespace

Usage usageOf(const Block& text, llvm::StringRef name, bool asParameter) { return Uses(name, asParameter).read(text); }

std::string declarationOf(llvm::StringRef name, const Usage& usage) {
  if (usage.dims.empty()) {
    if (!usage.type) return "";
    const bool isBool = usage.type == UsedAs::Bool, isInt = usage.type == UsedAs::Int;
    return name.str() + ": " + (isBool ? "bool" : isInt ? "int" : "float");
  }
  std::string text = name.str() + ": " +
                     (usage.type == UsedAs::Bool  ? "bool"
                      : usage.type == UsedAs::Int ? "i32"
                                                  : "f32") +
                     "[";
  const char* kFree[] = {"N", "M", "L", "P", "R", "S"};
  size_t free = 0;
  for (const std::string& dim : usage.dims)
    text += (text.back() == '[' ? "" : ", ") + (dim.empty() ? kFree[free++ % std::size(kFree)] : dim);
  return text + "]";
}

} // namespace attnc::dsl
