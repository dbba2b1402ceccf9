// In: a text and defines. Out: a module, or all errors of the text. The steps in order: lex and parse, read the
// defines, execute the module's statements, trace the mods.
#include "dsl/frontend.h"

#include "dsl/objects/lazy.h"
#include "dsl/syntax/parser.h"
#include "dsl/tracing/trace_mods.h"
#include "support/readable.h"

namespace attnc::dsl {

namespace {

bool isLiteral(const Expr& expr) {
  switch (expr.kind) {
  case ExprKind::None:
  case ExprKind::Bool:
  case ExprKind::Int:
  case ExprKind::Float:
  case ExprKind::String: return true;
  case ExprKind::Unary: {
    const auto& unary = llvm::cast<UnaryExpr>(expr);
    return unary.op != UnaryOp::Not && isLiteral(*unary.operand);
  }
  case ExprKind::Sequence:
    return llvm::all_of(llvm::cast<SequenceExpr>(expr).items, [](const Expr* item) { return isLiteral(*item); });
  case ExprKind::Call: { // float("inf")
    const auto& call = llvm::cast<CallExpr>(expr);
    const auto* callee = llvm::dyn_cast<NameExpr>(call.callee);
    return callee && callee->name == "float" && call.arguments.size() == 1 && call.keywords.empty() &&
           call.arguments[0]->kind == ExprKind::String;
  }
  default: return false;
  }
}

/// Reads the value of one define. `trees` keeps its tree.
void readDefine(Tracer& tracer, const std::string& name, std::string_view value,
                std::vector<std::unique_ptr<Ast>>& trees) {
  Diagnostics& diagnostics = tracer.diagnostics;
  uint32_t source = diagnostics.addSource({"<-D " + name + ">", value});
  Loc whole{0, uint32_t(std::min<size_t>(value.size(), UINT32_MAX)), source};
  trees.push_back(parse(source, diagnostics));
  if (!diagnostics.empty()) return;
  const Block& body = trees.back()->body;
  const auto* stmt = body.size() == 1 ? llvm::dyn_cast<ExpressionStmt>(body[0]) : nullptr;
  if (!stmt || !isLiteral(*stmt->value)) return diagnostics.report(whole, diag::defineNotLiteral);
  tracer.defines[name] = {whole, tracer.eval(*stmt->value)};
}

/// Parses a text that was given with the mod, and keeps its tree.
const Block& parseGiven(Diagnostics& diagnostics, const std::string& option, std::string_view text,
                        std::vector<std::unique_ptr<Ast>>& trees) {
  trees.push_back(parse(diagnostics.addSource({option, text}), diagnostics));
  return trees.back()->body;
}

/// Returns the expression that picks a mod. Returns null, and reports an error, if the text is not one expression.
const Expr* readPick(Tracer& tracer, const std::string& text, std::vector<std::unique_ptr<Ast>>& trees) {
  Diagnostics& diagnostics = tracer.diagnostics;
  const Block& body = parseGiven(diagnostics, "<--mod>", text, trees);
  if (!diagnostics.empty()) return nullptr;
  const auto* stmt = body.size() == 1 ? llvm::dyn_cast<ExpressionStmt>(body[0]) : nullptr;
  if (stmt) return stmt->value;
  Loc whole{0, uint32_t(std::min<size_t>(text.size(), UINT32_MAX)),
            trees.empty() ? 0 : uint32_t(diagnostics.sources() - 1)};
  diagnostics.report(whole, diag::pickNotExpression);
  return nullptr;
}

/// Runs `work`, which reports to `diagnostics`. Returns the error if anything was reported.
template <class Work> std::optional<Error> collect(Diagnostics& diagnostics, Work work) {
  try {
    work();
  } catch (const Abort&) {
    if (diagnostics.empty()) return Error::internal("tracing stopped without a diagnostic");
  }
  if (diagnostics.empty()) return std::nullopt;
  return diagnostics.error();
}

} // namespace

Expected<ir::Module> trace(std::string_view text, const FrontendOptions& options, Notes* notes) {
  ir::Module module;
  module.sourceName = readable(options.name);
  module.offsetsQueries = true; // what holds for positions also holds without offsets
  Diagnostics diagnostics;
  std::vector<std::unique_ptr<Ast>> trees;
  auto error = collect(diagnostics, [&] {
    std::unique_ptr<Ast> ast = parse(diagnostics.addSource({options.name, text}), diagnostics);
    if (!diagnostics.empty()) return;
    Tracer tracer(module, diagnostics);
    for (auto& [name, value] : options.defines) readDefine(tracer, name, value, trees);
    for (const CaptureInfo& info : options.available) tracer.available[info.name] = info;
    for (const std::string& declaration : options.captures) {
      const Block& body = parseGiven(diagnostics, "<--capture>", declaration, trees);
      if (diagnostics.empty()) tracer.runDeclarations(body);
    }
    for (const ir::TensorCapture& capture : module.tensors) tracer.given.insert(capture.name);
    for (const ir::ScalarCapture& capture : module.scalars) tracer.given.insert(capture.name);
    std::vector<const Expr*> picks;
    for (const std::string& pick : options.mods)
      if (const Expr* expr = readPick(tracer, pick, trees)) picks.push_back(expr);
    if (!diagnostics.empty()) return;
    const std::vector<ModChoice> choices = traceMods(tracer, *ast, picks);
    if (!notes || !diagnostics.empty()) return;
    warnOfUnused(tracer, *ast);
    *notes = {diagnostics.warnings(), choices, {tracer.constants.begin(), tracer.constants.end()}};
  });
  if (error) return std::move(*error);
  module.offsetsQueries = false;
  return withoutElements(module);
}

Expected<std::string> astText(std::string_view text, const FrontendOptions& options) {
  Diagnostics diagnostics;
  std::string result;
  auto error = collect(diagnostics, [&] {
    std::unique_ptr<Ast> ast = parse(diagnostics.addSource({options.name, text}), diagnostics);
    if (diagnostics.empty()) result = toText(*ast);
  });
  if (error) return std::move(*error);
  return result;
}

} // namespace attnc::dsl
