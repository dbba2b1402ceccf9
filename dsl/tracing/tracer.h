// The tracer: runs a syntax tree with objects known before launch and values of the IR.
//
// In: a tree and the overrides of its constants. Out: the module's captures, filled in as their declarations are met,
// and the names that the text binds; functions are evaluated when they are called.
#pragma once

#include "dsl/builtins/builtins.h"
#include "dsl/objects/context.h"

#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/ADT/StringMap.h>

#include <map>

namespace attnc::dsl {

struct Arguments {
  llvm::SmallVector<Object, 6> positional;
  llvm::SmallVector<std::pair<llvm::StringRef, Object>, 2> keywords;
};

/// An override of a constant (`-D NAME=VALUE`).
struct Define {
  Loc loc; ///< in a text of its own
  Object value;
  bool used = false;
};

class Tracer : public Context {
public:
  Tracer(ir::Module& module, Diagnostics& diagnostics) : Context(module, diagnostics) {}

  std::map<std::string, Define, std::less<>> defines;
  Scope globals;

  /// Executes statements at module level.
  void runModule(const Block& body);
  Object eval(const Expr& expr);
  /// Evaluates in a scope of its own, whose parent is the module.
  Object evalWith(const Expr& expr, llvm::ArrayRef<std::pair<llvm::StringRef, Object>> names);
  Object call(Object callee, const Arguments& arguments);
  /// Visits the items of an iterable until `visit` returns false.
  void forEach(Object iterable, llvm::function_ref<bool(Object)> visit);
  std::vector<Object> items(Object iterable);

  /// All statements of the text, for hints about what follows an error; null if there is no text.
  const Block* text = nullptr;
  /// Names of the module that may not be bound again: captures, and names of extents.
  llvm::StringSet<> declared;
  /// The expression that the function called last returned.
  Loc resultLoc;
  /// The names of evalWith() that the expression has looked up.
  llvm::StringSet<> lookups;

private:
  enum class Flow : uint8_t { Next, Break, Continue, Return };

  // expressions.cpp
  Object evalKind(const Expr& expr);
  Object evalBinary(const BinaryExpr& expr);
  Object evalBoolOp(const BoolOpExpr& expr);
  Object evalCompare(const CompareExpr& expr);
  Object evalCall(const CallExpr& expr);
  Object evalSequence(const SequenceExpr& expr);
  Object evalSlice(const SliceExpr& expr);
  Object evalComprehension(const ComprehensionExpr& expr);
  void runClauses(const ComprehensionExpr& expr, size_t clause, std::vector<Object>& result);
  Object makeFunction(const FunctionNode& node);

  // statements.cpp
  Flow run(const Block& body);
  Flow run(const Stmt& stmt);
  Flow runIf(const IfStmt& stmt);
  Flow runFor(const ForStmt& stmt);
  Flow runWhile(const WhileStmt& stmt);
  void runAssign(const AssignStmt& stmt);
  void runAugAssign(const AugAssignStmt& stmt);
  void runAnnAssign(const AnnAssignStmt& stmt);
  void assign(const Expr& target, Object value);
  void bind(llvm::StringRef name, Loc loc, Object value);
  void poison(const Stmt& stmt);
  Object override(llvm::StringRef name, Object value);

  // calls.cpp
  Object callFunction(const Function& function, const Arguments& arguments);
  Object callBuiltin(const Builtin& builtin, const Arguments& arguments);
  Object callMasks(const MaskList& list, const Arguments& arguments);
  void bindParameters(const Function& function, const Arguments& arguments, Scope& into);

  // names.cpp
  Object lookup(llvm::StringRef name);
  std::optional<Object> lookupBuiltin(llvm::StringRef name);
  std::optional<Object> member(Namespace space, llvm::StringRef name);
  Object attribute(Object base, llvm::StringRef name);
  std::optional<Object> property(Object base, llvm::StringRef name);
  void runImport(const ImportStmt& stmt);

  // suggestions.cpp
  [[noreturn]] void undefined(llvm::StringRef name);
  [[noreturn]] void noMember(Loc loc, llvm::StringRef path, llvm::StringRef name,
                             llvm::ArrayRef<llvm::StringRef> known);

  // captures.cpp
  void declare(llvm::StringRef name, const Expr& annotation);
  void declareTensor(llvm::StringRef name, DType dtype, const Expr* dims);
  ir::Extent extent(const Expr& dim);
  ir::Extent namedExtent(llvm::StringRef name, Loc loc);

  class Deeper;

  Scope* scope = &globals;
  const Scope* watched = nullptr; // of evalWith()
  Object returned;
  unsigned depth = 0;     // expressions and statements under evaluation
  unsigned callDepth = 0; // functions under evaluation
};

} // namespace attnc::dsl
