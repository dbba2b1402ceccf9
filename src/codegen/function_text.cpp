#include "codegen/function_text.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringExtras.h>

#include <fmt/format.h>

namespace attnc::codegen {

using ir::Level;

namespace {

/// A nested expression does not grow beyond this many characters.
constexpr size_t kMaxNested = 48;

Function homeOf(Level level) {
  switch (level) {
  case Level::Launch:
  case Level::Head: return Function::Head;
  case Level::Row: return Function::Row;
  case Level::Column: return Function::Column;
  case Level::Element: return Function::Score;
  }
  return Function::Score;
}

bool standsForItself(const Expr& expr) { return expr.kind == Expr::Kind::Leaf || expr.kind == Expr::Kind::Param; }

/// How tightly the outermost operator of a pattern binds, as in C++: the smaller the tighter.
enum Binding { Primary, Unary, Product, Sum, Comparison, Loose };

Binding bindingOf(llvm::StringRef pattern) {
  size_t name = pattern.find_if_not([](char c) { return llvm::isAlnum(c) || c == '_' || c == '.'; });
  if (name == llvm::StringRef::npos) return Primary; // a name, a field or a literal
  if (name > 0 && pattern[name] == '(' && pattern.find(')') == pattern.size() - 1) return Primary; // a call
  llvm::StringRef first = pattern.split("} ").second.split(' ').first; // the operator behind the first hole
  if (first == "*" || first == "/" || first == "%") return Product;
  if (first == "+" || first == "-") return Sum;
  if (first == "==" || first == "!=" || first == "<" || first == "<=") return Comparison;
  return first.empty() && !pattern.contains(' ') ? Unary : Loose;
}

/// Whether an operand needs parentheses in hole `hole` of `user`. Fewer than the reader expects are not left out:
/// operands of & | ^ ?: keep theirs, but for chains of one operator.
bool needsParentheses(llvm::StringRef operand, llvm::StringRef user, unsigned hole) {
  Binding inner = bindingOf(operand), outer = bindingOf(user);
  if (inner == Primary || outer == Primary) return false; // holes of calls are whole arguments
  if (hole == 0 && operand == user && outer == Loose) return user.contains('?');
  if (outer == Product || outer == Sum) return inner == Unary || (hole == 0 ? inner > outer : inner >= outer);
  return outer != Comparison || inner >= outer;
}

} // namespace

FunctionText::FunctionText(const Program& of, Function function, std::vector<uint32_t> rootIds, Fields& fields)
    : program(of), function(function), roots(std::move(rootIds)), uses(of.exprs.size(), 0) {
  for (uint32_t root : roots) use(root, fields);
  for (uint32_t id = uint32_t(uses.size()); id-- > 0;)
    if (uses[id] > 0)
      for (uint32_t operand : program.exprs[id].operands) use(operand, fields);
}

bool FunctionText::isOwn(const Expr& expr) const {
  Function home = homeOf(expr.level);
  if (function == Function::Edge) return home == Function::Row;
  return home == function || (home == Function::Score && !fills());
}

void FunctionText::use(uint32_t id, Fields& fields) {
  const Expr& expr = program.exprs[id];
  if (standsForItself(expr)) return;
  if (isOwn(expr))
    ++uses[id];
  else if (expr.level == Level::Row)
    fields.row.insert(id);
  else if (expr.level == Level::Column)
    fields.column.insert(id);
  else
    fields.head.insert(id);
}

FunctionText::Text FunctionText::spell(uint32_t id, const std::vector<Text>& own, const Fields& fields) const {
  const Expr& expr = program.exprs[id];
  switch (expr.kind) {
  case Expr::Kind::Leaf: return {expr.text, expr.text};
  case Expr::Kind::Param: return {takesCoord() && expr.text != "score" ? "at." + expr.text : expr.text};
  case Expr::Kind::FloatIndex:
    if (isOwn(expr)) return {expr.text};
    break;
  case Expr::Kind::Computed:
    if (isOwn(expr)) return own[id];
    break;
  }
  switch (homeOf(expr.level)) {
  case Function::Row: return {"row." + fields.names[id]};
  case Function::Column: return {"col." + fields.names[id]};
  case Function::Head:
  case Function::Score:
  case Function::Mask:
  case Function::Hook:
  case Function::Edge: break;
  }
  return {"head." + fields.names[id]};
}

/// Fills the holes of the pattern.
FunctionText::Text FunctionText::expand(const Expr& expr, const std::vector<Text>& own, const Fields& fields) const {
  llvm::StringRef pattern = expr.text;
  if (pattern == "{0}") return spell(expr.operands[0], own, fields);
  std::string code;
  for (size_t at = 0; at < pattern.size();) {
    if (pattern[at] != '{') {
      code += pattern[at++];
      continue;
    }
    size_t end = pattern.find('}', at) + 1;
    unsigned hole = 0;
    pattern.slice(at + 1, end - 1).getAsInteger(10, hole);
    Text operand = spell(expr.operands[hole], own, fields);
    bool wrap = needsParentheses(operand.pattern, pattern, hole);
    code += wrap ? "(" + operand.code + ")" : operand.code;
    at = end;
  }
  return {code, expr.text};
}

std::string FunctionText::body(const Fields& fields, const std::string& file) const {
  Names locals;
  std::vector<Text> own(program.exprs.size());
  std::string text;
  auto state = [&](const Expr& expr, const std::string& statement) {
    if (expr.line) text += fmt::format("#line {} {}\n", expr.line, file);
    text += "    " + statement + ";\n";
  };
  for (uint32_t id = 0; id < uses.size(); ++id) {
    if (uses[id] == 0) continue;
    const Expr& expr = program.exprs[id];
    own[id] = expr.kind == Expr::Kind::Computed ? expand(expr, own, fields) : spell(id, own, fields);
    if (fills() && llvm::is_contained(roots, id)) {
      std::string field = "out." + fields.names[id];
      state(expr, field + " = " + own[id].code);
      own[id] = {field};
    } else if (expr.kind == Expr::Kind::Computed && (uses[id] > 1 || own[id].code.size() > kMaxNested) &&
               !(!fills() && id == roots[0])) {
      std::string local = locals.unique(expr.prefix, expr.name);
      const char* qualifier = llvm::StringRef(expr.type).startswith("const ") ? "" : "const "; // pointers have one
      state(expr, fmt::format("{}{} {} = {}", qualifier, expr.type, local, own[id].code));
      own[id] = {local};
    }
  }
  if (fills()) return text;
  state(program.exprs[roots[0]], "return " + spell(roots[0], own, fields).code);
  return text;
}

} // namespace attnc::codegen
