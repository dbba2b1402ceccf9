#include "codegen/function_text.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringExtras.h>

#include <fmt/format.h>

#include <bit>

namespace attnc::codegen {

using ir::Level;

namespace {

/// Nested expressions do not grow beyond this number of characters.
constexpr size_t kMaxNested = 48;

/// Rounds of a sum per iteration of its loop: loads overlap, and a sum's code for every score stays small.
constexpr int kUnrolledRounds = 4;

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

bool standsForItself(const Expr& expr) {
  return expr.kind == Expr::Kind::Leaf || expr.kind == Expr::Kind::Param || expr.kind == Expr::Kind::Iter;
}

constexpr std::string_view kSelection = "{0} ? {1} : {2}";

/// How tightly the outermost operator of a pattern binds, as in C++: smaller is tighter.
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

/// Whether an operand needs parentheses in hole `hole` of `user`. Keeps parentheses that readers expect: operands of &
/// | ^ ?: have them, except in chains of one operator.
bool needsParentheses(llvm::StringRef operand, llvm::StringRef user, unsigned hole) {
  Binding inner = bindingOf(operand), outer = bindingOf(user);
  if (inner == Primary || outer == Primary) return false; // holes of calls are whole arguments
  if (hole == 0 && operand == user && outer == Loose) return user.contains('?');
  if (outer == Product || outer == Sum) return inner == Unary || (hole == 0 ? inner > outer : inner >= outer);
  return outer != Comparison || inner >= outer;
}

/// Whether templates/mod/ranges.cuh has the operation.
bool isOverRanges(const Expr& expr) {
  if (expr.kind != Expr::Kind::Computed || !FunctionText::hasRanges(expr.type)) return expr.kind == Expr::Kind::Given;
  constexpr std::string_view kAny[] = {"{0}",        "{0} == {1}", "{0} != {1}", "{0} < {1}",
                                       "{0} <= {1}", "{0} != 0",   "{0} != 0.0f"};
  constexpr std::string_view kOfBool[] = {"{0} & {1}", "{0} | {1}", "!{0}"};
  constexpr std::string_view kOfNumbers[] = {"{0} + {1}",          "{0} - {1}",        "wrap_add({0}, {1})",
                                             "wrap_sub({0}, {1})", "min_of({0}, {1})", "max_of({0}, {1})",
                                             "abs_of({0})",        "i64_of({0})",      kSelection};
  return llvm::is_contained(kAny, expr.text) ||
         (expr.type == "bool" ? llvm::is_contained(kOfBool, expr.text) : llvm::is_contained(kOfNumbers, expr.text));
}

} // namespace

bool FunctionText::hasRanges(std::string_view type) {
  return type == "bool" || type == "int" || type == "long long" || type == "float";
}

FunctionText::FunctionText(const Program& of, Function function, std::vector<uint32_t> rootIds, Fields& fields)
    : program(of), function(function), roots(std::move(rootIds)) {
  for (uint32_t root : roots) use(root, fields);
  for (auto at = uses.end(); at != uses.begin();) { // operands have smaller ids, so they come later
    --at;
    for (uint32_t operand : program.exprs[at->first].operands) use(operand, fields);
  }
}

int64_t FunctionText::work() const {
  int64_t sum = 0;
  for (const auto& [id, count] : uses) {
    const Expr& expr = program.exprs[id];
    if (standsForItself(expr)) continue;
    int64_t cost = expr.cost;
    for (int depth = std::popcount(expr.open); depth > 0; --depth) cost *= kUnrolledRounds;
    sum += cost;
  }
  return sum;
}

bool FunctionText::isOwn(const Expr& expr) const {
  if (expr.open) return true; // computed with its sum
  Function home = homeOf(expr.level);
  if (function == Function::Edge) return home == Function::Row;
  if (function == Function::Sink) return true;
  if (program.scoresKeepNothing && takesCoord() && expr.kind != Expr::Kind::Given && expr.level > Level::Head)
    return true;
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

FunctionText::Text FunctionText::spell(uint32_t id, const Texts& own, const Fields& fields) const {
  const Expr& expr = program.exprs[id];
  switch (expr.kind) {
  case Expr::Kind::Leaf: return {expr.text, expr.text};
  case Expr::Kind::Iter: return {expr.text};
  case Expr::Kind::Param: {
    if (takesCoord() && expr.level != Level::Element) return {"at." + expr.text};
    const bool isToken = program.onGrid && (expr.level == Level::Row || expr.level == Level::Column);
    return {isToken ? expr.text + ".index" : expr.text};
  }
  case Expr::Kind::Given:
    if (isOwn(expr)) return {expr.text};
    break;
  case Expr::Kind::Computed:
  case Expr::Kind::Sum:
    if (isOwn(expr)) return own.lookup(id);
    break;
  }
  switch (homeOf(expr.level)) {
  case Function::Row: return {"row." + fields.names[id]};
  case Function::Column: return {"col." + fields.names[id]};
  case Function::Head:
  case Function::Score:
  case Function::DScore:
  case Function::Mask:
  case Function::Hook:
  case Function::Edge:
  case Function::Sink: break;
  }
  return {"head." + fields.names[id]};
}

/// Returns the pattern with its holes filled.
FunctionText::Text FunctionText::expand(const Expr& expr, const Texts& own, const Fields& fields) const {
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

/// Returns the expressions that a sum computes in each round, operands first; see ir::nodesInside.
std::vector<uint32_t> FunctionText::insideOf(uint32_t sum) const {
  const ir::Loop loop = program.exprs[sum].loop;
  std::set<uint32_t> seen, inside;
  llvm::SmallVector<uint32_t, 16> left = {program.exprs[sum].operands[0]};
  while (!left.empty()) {
    const uint32_t id = left.pop_back_val();
    const Expr& expr = program.exprs[id];
    if (!(expr.open & only(loop)) || !seen.insert(id).second) continue;
    if (ir::innermost(expr.open) == loop.id) inside.insert(id);
    left.append(expr.operands.begin(), expr.operands.end());
  }
  return {inside.begin(), inside.end()};
}

/// Writes the statements of one function.
class FunctionText::Writer {
public:
  Writer(const FunctionText& function, const Fields& fields, const std::string& file, bool ofRanges = false)
      : of(function), program(function.program), fields(fields), file(file), ofRanges(ofRanges) {}

  std::string run() {
    std::vector<uint32_t> ids;
    for (const auto& [id, count] : of.uses)
      if (!program.exprs[id].open) ids.push_back(id);
    write(ids, 0);
    if (!of.fills()) state(program.exprs[of.roots[0]], 0, "return " + of.spell(of.roots[0], own, fields).code);
    return std::move(text);
  }

private:
  void indent(unsigned depth) { text.append(4 + 2 * depth, ' '); }

  void state(const Expr& expr, unsigned depth, const std::string& statement) {
    if (expr.line) text += fmt::format("#line {} {}\n", expr.line, file);
    indent(depth);
    text += statement + ";\n";
  }

  void write(llvm::ArrayRef<uint32_t> ids, unsigned depth) {
    for (uint32_t id : ids) {
      const Expr& expr = program.exprs[id];
      if (expr.kind == Expr::Kind::Iter) continue;
      if (ofRanges && !isOverRanges(expr)) {
        own[id] = {fmt::format("Range<{}>::any()", expr.type)};
        continue;
      }
      if (expr.kind == Expr::Kind::Sum)
        own[id] = {loop(id, depth)};
      else
        own[id] = expr.kind == Expr::Kind::Computed ? expand(expr) : of.spell(id, own, fields);
      const bool isRoot = !expr.open && llvm::is_contained(of.roots, id);
      if (of.fills() && isRoot) {
        std::string field = "out." + fields.names[id];
        state(expr, depth, field + " = " + own[id].code);
        own[id] = {field};
      } else if (expr.kind == Expr::Kind::Computed && (of.uses.at(id) > 1 || own[id].code.size() > kMaxNested) &&
                 !(!of.fills() && isRoot && id == of.roots[0])) {
        std::string local = locals.unique(expr.prefix, expr.name);
        const char* qualifier = expr.type.starts_with("const ") ? "" : "const "; // pointers are const already
        const std::string type = ofRanges ? fmt::format("Range<{}>", expr.type) : expr.type;
        state(expr, depth, fmt::format("{}{} {} = {}", qualifier, type, local, own[id].code));
        own[id] = {local};
      }
    }
  }

  Text expand(const Expr& expr) const {
    if (!ofRanges || expr.text != kSelection) return of.expand(expr, own, fields);
    Expr call = expr; // ?: cannot be overloaded
    call.text = fmt::format("Range<{}>::choose({{0}}, {{1}}, {{2}})", expr.type);
    return {of.expand(call, own, fields).code, "choose()"};
  }

  /// Writes the loop of a sum; returns the name of the total.
  std::string loop(uint32_t id, unsigned depth) {
    const Expr& expr = program.exprs[id];
    std::string total = locals.unique(expr.prefix, expr.name), index = fmt::format("i{}", expr.loop.id);
    const bool isFloat = expr.type == "float";
    state(expr, depth, fmt::format("{} {} = {}", expr.type, total, isFloat ? "0.0f" : "0"));
    indent(depth);
    text += fmt::format("ATTNC_UNROLL({}) for (int {index} = 0; {index} < {}; ++{index}) {{\n", kUnrolledRounds,
                        expr.loop.count, fmt::arg("index", index));
    write(of.insideOf(id), depth + 1);
    const std::string term = of.spell(expr.operands[0], own, fields).code;
    state(expr, depth + 1,
          isFloat ? fmt::format("{} += {}", total, term) : fmt::format("{0} = wrap_add({0}, {1})", total, term));
    indent(depth);
    text += "}\n";
    return total;
  }

  const FunctionText& of;
  const Program& program;
  const Fields& fields;
  const std::string& file;
  const bool ofRanges;
  std::string text;
  Names locals;
  Texts own; // open expressions, in the current loop
};

std::string FunctionText::body(const Fields& fields, const std::string& file) const {
  return Writer(*this, fields, file).run();
}

std::string FunctionText::overRanges(const Fields& fields, const std::string& file) const {
  return Writer(*this, fields, file, true).run();
}

} // namespace attnc::codegen
