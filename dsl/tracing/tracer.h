// The tracer: runs a syntax tree with values known before launch and values of the IR.
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
  llvm::SmallVector<Value, 6> positional;
  llvm::SmallVector<std::pair<llvm::StringRef, Value>, 2> keywords;
};

/// An override of a constant (`-D NAME=VALUE`).
struct Define {
  Loc loc; ///< in a text of its own
  Value value;
  bool used = false;
};

class Tracer : public Context {
public:
  Tracer(ir::Module& module, Diagnostics& diagnostics) : Context(module, diagnostics) {}

  std::map<std::string, Define, std::less<>> defines;
  Scope globals;

  /// Executes statements at module level.
  void runModule(const Block& body);
  Value eval(const Expr& expr);
  /// Evaluates in a scope of its own, whose parent is the module.
  Value evalWith(const Expr& expr, llvm::ArrayRef<std::pair<llvm::StringRef, Value>> names);
  Value call(Value callee, const Arguments& arguments);
  /// Visits the items of an iterable until `visit` returns false.
  void forEach(Value iterable, llvm::function_ref<bool(Value)> visit);
  std::vector<Value> items(Value iterable);

  /// All statements of the text, for hints about what follows an error; null if there is no text.
  const Block* text = nullptr;
  /// Names of the module that may not be bound again: captures, and names of extents.
  llvm::StringSet<> declared;
  /// The expression that the function called last returned.
  Loc resultLoc;
  /// Those names of evalWith() that the expression has asked for.
  llvm::StringSet<> lookups;

private:
  enum class Flow : uint8_t { Next, Break, Continue, Return };

  // trace_expr.cpp
  Value evalKind(const Expr& expr);
  Value evalBinary(const BinaryExpr& expr);
  Value evalBoolOp(const BoolOpExpr& expr);
  Value evalCompare(const CompareExpr& expr);
  Value evalCall(const CallExpr& expr);
  Value evalSequence(const SequenceExpr& expr);
  Value evalSlice(const SliceExpr& expr);
  Value evalComprehension(const ComprehensionExpr& expr);
  void runClauses(const ComprehensionExpr& expr, size_t clause, std::vector<Value>& result);
  Value makeFunction(const FunctionNode& node);

  // trace_stmt.cpp
  Flow run(const Block& body);
  Flow run(const Stmt& stmt);
  Flow runIf(const IfStmt& stmt);
  Flow runFor(const ForStmt& stmt);
  Flow runWhile(const WhileStmt& stmt);
  void runAssign(const AssignStmt& stmt);
  void runAugAssign(const AugAssignStmt& stmt);
  void runAnnAssign(const AnnAssignStmt& stmt);
  void assign(const Expr& target, Value value);
  void bind(llvm::StringRef name, Loc loc, Value value);
  void poison(const Stmt& stmt);
  Value override(llvm::StringRef name, Value value);

  // trace_call.cpp
  Value callFunction(const Function& function, const Arguments& arguments);
  Value callBuiltin(const Builtin& builtin, const Arguments& arguments);
  Value callMasks(const MaskList& list, const Arguments& arguments);
  void bindParameters(const Function& function, const Arguments& arguments, Scope& into);

  // names.cpp
  Value lookup(llvm::StringRef name);
  std::optional<Value> lookupBuiltin(llvm::StringRef name);
  std::optional<Value> member(Namespace space, llvm::StringRef name);
  Value attribute(Value base, llvm::StringRef name);
  std::optional<Value> property(Value base, llvm::StringRef name);
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
  Value returned;
  unsigned depth = 0;     // expressions and statements under evaluation
  unsigned callDepth = 0; // functions under evaluation
};

} // namespace attnc::dsl
