// In: a syntax tree. Out: its s-expressions, one statement a line, for `--stage ast` and for tests.
// Not: the original text. Comments, brackets and spacing are lost.
#include "dsl/syntax/ast.h"

#include <llvm/Support/Format.h>
#include <llvm/Support/raw_ostream.h>

#include <cmath>

namespace attnc::dsl {

const char* spelling(BinaryOp op) {
  switch (op) {
  case BinaryOp::Add: return "+";
  case BinaryOp::Sub: return "-";
  case BinaryOp::Mul: return "*";
  case BinaryOp::Div: return "/";
  case BinaryOp::FloorDiv: return "//";
  case BinaryOp::Mod: return "%";
  case BinaryOp::Pow: return "**";
  case BinaryOp::MatMul: return "@";
  case BinaryOp::Shl: return "<<";
  case BinaryOp::Shr: return ">>";
  case BinaryOp::And: return "&";
  case BinaryOp::Or: return "|";
  case BinaryOp::Xor: return "^";
  }
  return "?";
}

const char* spelling(UnaryOp op) {
  switch (op) {
  case UnaryOp::Neg: return "-";
  case UnaryOp::Pos: return "+";
  case UnaryOp::Invert: return "~";
  case UnaryOp::Not: return "not";
  }
  return "?";
}

const char* spelling(CompareOp op) {
  switch (op) {
  case CompareOp::Eq: return "==";
  case CompareOp::Ne: return "!=";
  case CompareOp::Lt: return "<";
  case CompareOp::Le: return "<=";
  case CompareOp::Gt: return ">";
  case CompareOp::Ge: return ">=";
  case CompareOp::Is: return "is";
  case CompareOp::IsNot: return "is-not";
  case CompareOp::In: return "in";
  case CompareOp::NotIn: return "not-in";
  }
  return "?";
}

namespace {

class Printer {
public:
  explicit Printer(llvm::raw_ostream& out) : out(out) {}

  void block(const Block& statements) {
    for (const Stmt* stmt : statements) {
      out.indent(2 * depth);
      statement(*stmt);
    }
  }

private:
  void list(const char* head, llvm::ArrayRef<Expr*> items) {
    out << '(' << head;
    for (const Expr* item : items) item ? (out << ' ', expression(*item)) : void(out << " _");
    out << ')';
  }

  /// `(head items):` and an indented block, which ends with its indentation.
  void headed(const char* head, llvm::ArrayRef<Expr*> items, const Block& body) {
    list(head, items);
    out << '\n';
    nested(body);
  }

  void nested(const Block& body) {
    ++depth;
    block(body);
    --depth;
  }

  void otherwise(const Block& body) {
    if (body.empty()) return;
    out.indent(2 * depth) << "(else)\n";
    nested(body);
  }

  void real(double value) {
    if (std::isinf(value))
      out << "inf";
    else
      out << llvm::format("%.17g", value);
  }

  void quoted(llvm::StringRef text) {
    out << '"';
    out.write_escaped(text.take_front(80));
    out << (text.size() > 80 ? "...\"" : "\"");
  }

  void binary(const BinaryExpr& expr) {
    llvm::SmallVector<const BinaryExpr*, 8> chain;
    const Expr* innermost = &expr;
    while (const auto* node = llvm::dyn_cast<BinaryExpr>(innermost)) {
      chain.push_back(node);
      out << '(' << spelling(node->op) << ' ';
      innermost = node->left;
    }
    expression(*innermost);
    for (const BinaryExpr* node : llvm::reverse(chain)) {
      out << ' ';
      expression(*node->right);
      out << ')';
    }
  }

  void compare(const CompareExpr& expr) {
    out << "(compare ";
    expression(*expr.first);
    for (auto [op, operand] : expr.rest) {
      out << ' ' << spelling(op) << ' ';
      expression(*operand);
    }
    out << ')';
  }

  void call(const CallExpr& expr) {
    out << "(call ";
    expression(*expr.callee);
    for (const Expr* argument : expr.arguments) out << ' ', expression(*argument);
    for (const Keyword& keyword : expr.keywords)
      out << ' ' << (keyword.name.empty() ? "**" : keyword.name.str() + "="), expression(*keyword.value);
    out << ')';
  }

  void comprehension(const ComprehensionExpr& expr) {
    out << "(comprehension ";
    if (expr.key) expression(*expr.key), out << ": ";
    expression(*expr.element);
    for (const ComprehensionClause& clause : expr.clauses) {
      out << ' ';
      list("for", {clause.target, clause.iterable});
      for (Expr* condition : clause.conditions) out << ' ', list("if", {condition});
    }
    out << ')';
  }

  void parameters(const FunctionNode& function) {
    out << '(';
    const char* separator = "";
    for (const Parameter& parameter : function.parameters) {
      out << separator << (parameter.kind == ParameterKind::Variadic ? "*" : "")
          << (parameter.kind == ParameterKind::Keywords ? "**" : "") << parameter.name;
      if (parameter.kind == ParameterKind::KeywordOnly) out << "!";
      if (parameter.defaultValue) out << '=', expression(*parameter.defaultValue);
      separator = " ";
    }
    out << ')';
  }

  void lambda(const FunctionNode& function) {
    out << "(lambda ";
    parameters(function);
    out << ' ';
    expression(*function.result);
    out << ')';
  }

  void expression(const Expr& expr) {
    using llvm::cast;
    switch (expr.kind) {
    case ExprKind::None: out << "None"; return;
    case ExprKind::Ellipsis: out << "..."; return;
    case ExprKind::Bool: out << (cast<BoolExpr>(expr).value ? "True" : "False"); return;
    case ExprKind::Int: out << cast<IntExpr>(expr).value; return;
    case ExprKind::Float: return real(cast<FloatExpr>(expr).value);
    case ExprKind::String: return quoted(cast<StringExpr>(expr).value);
    case ExprKind::Name: out << cast<NameExpr>(expr).name; return;
    case ExprKind::Unary: return list(spelling(cast<UnaryExpr>(expr).op), {cast<UnaryExpr>(expr).operand});
    case ExprKind::Binary: return binary(cast<BinaryExpr>(expr));
    case ExprKind::BoolOp: return list(cast<BoolOpExpr>(expr).isAnd ? "and" : "or", cast<BoolOpExpr>(expr).operands);
    case ExprKind::Compare: return compare(cast<CompareExpr>(expr));
    case ExprKind::Conditional: {
      const auto& node = cast<ConditionalExpr>(expr);
      return list("if", {node.condition, node.yes, node.no});
    }
    case ExprKind::Call: return call(cast<CallExpr>(expr));
    case ExprKind::Attribute:
      out << "(. ";
      expression(*cast<AttributeExpr>(expr).base);
      out << ' ' << cast<AttributeExpr>(expr).name << ')';
      return;
    case ExprKind::Subscript: return list("[]", {cast<SubscriptExpr>(expr).base, cast<SubscriptExpr>(expr).index});
    case ExprKind::Slice: {
      const auto& node = cast<SliceExpr>(expr);
      return list("slice", {node.start, node.stop, node.step});
    }
    case ExprKind::Sequence:
      return list(cast<SequenceExpr>(expr).isList ? "list" : "tuple", cast<SequenceExpr>(expr).items);
    case ExprKind::Lambda: return lambda(*cast<LambdaExpr>(expr).function);
    case ExprKind::Comprehension: return comprehension(cast<ComprehensionExpr>(expr));
    case ExprKind::Starred: return list("*", {cast<StarredExpr>(expr).value});
    case ExprKind::Dict:
      out << "(dict";
      for (auto [key, value] : cast<DictExpr>(expr).items) {
        out << ' ';
        if (key) expression(*key), out << ": ";
        if (!key) out << "**";
        expression(*value);
      }
      out << ')';
      return;
    case ExprKind::Named: return list(":=", {cast<NamedExpr>(expr).target, cast<NamedExpr>(expr).value});
    case ExprKind::Unsupported: out << "(unsupported)"; return;
    }
  }

  void decorators(llvm::ArrayRef<Expr*> items) {
    for (Expr* item : items) {
      simple("@", {item});
      out.indent(2 * depth);
    }
  }

  void attempt(const TryStmt& stmt) {
    out << "(try)\n";
    nested(stmt.body);
    for (const Handler& handler : stmt.handlers) {
      out.indent(2 * depth);
      headed("except", {handler.type}, handler.body);
    }
    otherwise(stmt.otherwise);
    if (stmt.finally.empty()) return;
    out.indent(2 * depth) << "(finally)\n";
    nested(stmt.finally);
  }

  void with(const WithStmt& stmt) {
    llvm::SmallVector<Expr*, 4> items;
    for (auto [context, target] : stmt.items) {
      items.push_back(context);
      if (target) items.push_back(target);
    }
    headed("with", items, stmt.body);
  }

  void imports(const ImportStmt& stmt) {
    out << (stmt.isFrom ? "(from " + stmt.module : "(import") << (stmt.isStar ? " *" : "");
    for (size_t i = 0; i < stmt.names.size(); ++i) {
      out << ' ' << (stmt.isFrom ? stmt.names[i].name : llvm::StringRef(stmt.paths[i]));
      if (!stmt.names[i].as.empty()) out << " as " << stmt.names[i].as;
    }
    out << ")\n";
  }

  void simple(const char* head, llvm::ArrayRef<Expr*> items) {
    list(head, items);
    out << '\n';
  }

  void conditional(const IfStmt& stmt) {
    for (size_t i = 0; i < stmt.clauses.size(); ++i) {
      if (i) out.indent(2 * depth);
      headed(i ? "elif" : "if", {stmt.clauses[i].first}, stmt.clauses[i].second);
    }
    otherwise(stmt.otherwise);
  }

  void statement(const Stmt& stmt) {
    using llvm::cast;
    switch (stmt.kind) {
    case StmtKind::Expression:
      expression(*cast<ExpressionStmt>(stmt).value);
      out << '\n';
      return;
    case StmtKind::Assign: {
      llvm::SmallVector<Expr*, 4> items(cast<AssignStmt>(stmt).targets.begin(), cast<AssignStmt>(stmt).targets.end());
      items.push_back(cast<AssignStmt>(stmt).value);
      return simple("=", items);
    }
    case StmtKind::AugAssign: {
      const auto& node = cast<AugAssignStmt>(stmt);
      return simple((std::string(spelling(node.op)) + "=").c_str(), {node.target, node.value});
    }
    case StmtKind::AnnAssign: {
      const auto& node = cast<AnnAssignStmt>(stmt);
      return node.value ? simple(":", {node.target, node.annotation, node.value})
                        : simple(":", {node.target, node.annotation});
    }
    case StmtKind::Return: return simple("return", {cast<ReturnStmt>(stmt).value});
    case StmtKind::If: return conditional(cast<IfStmt>(stmt));
    case StmtKind::For:
      headed("for", {cast<ForStmt>(stmt).target, cast<ForStmt>(stmt).iterable}, cast<ForStmt>(stmt).body);
      return otherwise(cast<ForStmt>(stmt).otherwise);
    case StmtKind::While:
      headed("while", {cast<WhileStmt>(stmt).condition}, cast<WhileStmt>(stmt).body);
      return otherwise(cast<WhileStmt>(stmt).otherwise);
    case StmtKind::Break: return simple("break", {});
    case StmtKind::Continue: return simple("continue", {});
    case StmtKind::Pass: return simple("pass", {});
    case StmtKind::Def:
      decorators(cast<DefStmt>(stmt).decorators);
      out << "(def " << cast<DefStmt>(stmt).function->name << ' ';
      parameters(*cast<DefStmt>(stmt).function);
      out << ")\n";
      return nested(cast<DefStmt>(stmt).function->body);
    case StmtKind::Import: return imports(cast<ImportStmt>(stmt));
    case StmtKind::Assert: return simple("assert", {cast<AssertStmt>(stmt).condition});
    case StmtKind::Raise: return simple("raise", {});
    case StmtKind::Class:
      decorators(cast<ClassStmt>(stmt).decorators);
      return headed(("class " + cast<ClassStmt>(stmt).function->name.str()).c_str(), cast<ClassStmt>(stmt).bases,
                    cast<ClassStmt>(stmt).function->body);
    case StmtKind::Try: return attempt(cast<TryStmt>(stmt));
    case StmtKind::With: return with(cast<WithStmt>(stmt));
    case StmtKind::Del: return simple("del", cast<DelStmt>(stmt).targets);
    case StmtKind::Unsupported: return simple("unsupported", {});
    }
  }

  llvm::raw_ostream& out;
  unsigned depth = 0;
};

} // namespace

std::string toText(const Ast& ast) {
  std::string text;
  llvm::raw_string_ostream out(text);
  Printer(out).block(ast.body);
  return out.str();
}

} // namespace attnc::dsl
