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

/// Identifiers, field accesses, non-negative literals and calls.
bool isPrimaryPattern(llvm::StringRef pattern) {
  size_t name = pattern.find_if_not([](char c) { return llvm::isAlnum(c) || c == '_' || c == '.'; });
  return name == llvm::StringRef::npos || (name > 0 && pattern[name] == '(' && pattern.find(')') == pattern.size() - 1);
}

/// Whether the hole that ends before `end` is a whole argument of a call, so that nothing binds tighter than it.
bool isArgument(llvm::StringRef pattern, size_t begin, size_t end) {
  llvm::StringRef before = pattern.take_front(begin), after = pattern.drop_front(end);
  return (before.endswith("(") || before.endswith(", ")) && (after.startswith(")") || after.startswith(","));
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
  case Expr::Kind::Leaf: return {expr.text, isPrimaryPattern(expr.text)};
  case Expr::Kind::Param: return {fills() || expr.text == "score" ? expr.text : "at." + expr.text};
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
  case Function::Mask: break;
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
    bool bare = operand.isPrimary || isArgument(pattern, at, end);
    code += bare ? operand.code : "(" + operand.code + ")";
    at = end;
  }
  return {code, isPrimaryPattern(pattern)};
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
