// The tracer: runs a syntax tree with objects known before launch and values of the IR.
//
// In: a tree and the overrides of its constants. Out: the names that the text binds, and the module's captures, filled
// in as their declarations are met. Functions are evaluated when they are called.
#pragma once

#include "attnc/mod.h"
#include "dsl/builtins/builtins.h"
#include "dsl/objects/context.h"
#include "ir/reductions.h"

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/ADT/StringMap.h>

#include <map>
#include <set>

namespace attnc::dsl {

/// An override of a constant (`-D NAME=VALUE`).
struct Define {
  Loc loc; ///< place in a text of its own
  Object value;
  bool used = false;
};

class Tracer final : public Context {
public:
  Tracer(ir::Module& module, Diagnostics& diagnostics) : Context(module, diagnostics) {}

  std::map<std::string, Define, std::less<>> defines;
  Scope globals;

  /// Executes statements at module level. Puts off what cannot be evaluated.
  void runModule(const Block& body);
  /// Executes a text of declarations, `name: dtype[dims]`.
  void runDeclarations(const Block& body);
  Object eval(const Expr& expr);
  /// Returns the value, or Deferred if it cannot be evaluated.
  Object evalLazy(const Expr& expr);
  /// Does work that the mod may not need. Errors are dropped, and the work does not count against the mod's budget.
  void tryOut(llvm::function_ref<void()> work);
  /// Reports why something could not be evaluated.
  void report(const Deferred& deferred);
  /// Evaluates in a new scope whose parent is the module.
  Object evalWith(const Expr& expr, llvm::ArrayRef<std::pair<llvm::StringRef, Object>> names);
  /// Returns the declaration that the uses of a name in the text show, or an empty text.
  std::string declarationInText(llvm::StringRef name);
  Object call(Object callee, const Arguments& arguments) override;
  /// Visits the items of an iterable until `visit` returns false.
  void forEach(Object iterable, llvm::function_ref<bool(Object)> visit);
  std::vector<Object> items(Object iterable) override;
  Object attribute(Object base, llvm::StringRef name) override;
  void setAttribute(Object base, llvm::StringRef name, Object value) override;
  void setFields(Instance& instance, const Class& type, const Arguments& arguments) override;
  std::optional<Object> callMethod(Instance& object, llvm::StringRef name,
                                   llvm::ArrayRef<Object> arguments = {}) override;

  /// All statements of the text, for hints about what follows an error; null if there is no text.
  const Block* text = nullptr;
  /// Names of the module that may not be bound again: captures, and names of extents.
  llvm::StringMap<Object> declared;
  /// Names of the module that a define may override.
  std::set<std::string> constants;
  /// Places of the declarations of captures, in order. Captures taken from `available` have none.
  std::vector<std::pair<llvm::StringRef, Loc>> declarations;
  /// Outputs that the text declares, in order.
  struct DeclaredOutput {
    llvm::StringRef name;
    Loc loc;
    const Expr* annotation; ///< null if it has none
    const ReducedObject* what;
  };
  std::vector<DeclaredOutput> outputs;
  /// Returns what the annotation of an output keeps.
  ir::Kept keptBy(const DeclaredOutput& output);
  /// Captures declared with the text, not in it. They win over assignments in the text.
  llvm::StringSet<> given;
  /// Tensors that become captures if the text needs their names and does not define them.
  std::map<std::string, CaptureInfo, std::less<>> available;
  /// Functions of the text that were called.
  llvm::DenseSet<const FunctionNode*> called;
  /// What was put off in functions called at module level, in order.
  std::vector<const Deferred*> deferrals;
  /// Whether a mod is being evaluated, as opposed to the code that makes it.
  bool isInMod = false;
  /// The place of the expression that the last called function returned.
  Loc resultLoc;
  /// The names of evalWith() that the expression has looked up.
  llvm::StringSet<> lookups;

private:
  enum class Flow : uint8_t { Next, Break, Continue, Return };

  // expressions.cpp
  Object evalKind(const Expr& expr);
  Object evalFirst(const Expr& expr);
  Object evalBinary(const BinaryExpr& expr);
  Object evalBoolOp(const BoolOpExpr& expr);
  Object evalConditional(const ConditionalExpr& expr);
  void warnOfPrecedence(const CompareExpr& expr);
  void warnOfMixedBits(const CompareExpr& expr, const Expr& operand);
  Object evalCompare(const CompareExpr& expr);
  Object evalCall(const CallExpr& expr);
  Object evalSequence(const SequenceExpr& expr);
  Object evalSlice(const SliceExpr& expr);
  Object evalComprehension(const ComprehensionExpr& expr);
  Object evalDict(const DictExpr& expr);
  std::optional<Object> captureForTable(const Expr& expr, Object value);
  void addKeywords(Object value, Arguments& arguments);
  const Deferred* whyNot(Object value) const;
  void runClauses(const ComprehensionExpr& expr, size_t clause, std::vector<Object>& result);
  Object makeFunction(const FunctionNode& node);

  // statements.cpp
  Flow run(const Block& body);
  Flow run(const Stmt& stmt);
  Flow runTry(const TryStmt& stmt);
  Flow runWith(const WithStmt& stmt);
  void runDel(const DelStmt& stmt);
  bool lookInto(llvm::ArrayRef<const Block*> blocks, const Expr* target, llvm::function_ref<void()> work);
  Flow runIf(const IfStmt& stmt);
  Flow runFor(const ForStmt& stmt);
  Flow runWhile(const WhileStmt& stmt);
  void runAssign(const AssignStmt& stmt);
  void runAugAssign(const AugAssignStmt& stmt);
  void runAnnAssign(const AnnAssignStmt& stmt);
  void assign(const Expr& target, Object value);
  void bind(llvm::StringRef name, Loc loc, Object value);
  Scope& scopeOf(llvm::StringRef name);
  Object override(llvm::StringRef name, Object value);

  // conditions.cpp
  std::optional<ir::Value> conditionOfLaunch(Object value);
  void require(ir::Value condition, const Expr* words, std::string otherwise);
  void runAssert(const AssertStmt& stmt);
  const RaiseStmt* raiseOf(const Block& body) const;
  void requireNoRaise(ir::Value condition, const RaiseStmt& raise, Loc asked);

  // deferral.cpp
  void putOff(const Stmt& stmt, const Deferred& why);
  void spoil(const Stmt& stmt, const Deferred& why);
  void spoilTarget(const Expr& target, const Deferred& why);
  void spoilMutable(const Expr& expr, const Deferred& why);
  void spoilBlock(const Block& body, const Deferred& why);
  bool bindSameFunction(const IfStmt& stmt);
  Object* place(llvm::StringRef name, const void** holder = nullptr);

  // classes.cpp
  void runClass(const ClassStmt& stmt);
  Object decorated(Object made, llvm::ArrayRef<Expr*> decorators);
  std::optional<Object> callMember(Instance& object, llvm::StringRef name, const Arguments& arguments);
  void declareField(const AnnAssignStmt& stmt);
  void makeDataclass(Class& type, const Expr& decorator);
  Object instantiate(Class& type, const Arguments& arguments);
  Object superOf();
  std::optional<Object> instanceMember(Instance& instance, llvm::StringRef name);
  std::optional<Object> classMember(Class& type, llvm::StringRef name, Object self);

  // calls.cpp
  Object callFunction(const Function& function, const Arguments& arguments);
  Object callBuiltin(const Builtin& builtin, const Arguments& arguments);
  Object callMods(const ModList& list, const Arguments& arguments);
  Object choose(const ModList& list, llvm::ArrayRef<Object> results, const Arguments& arguments);
  void bindParameters(const Function& function, const Arguments& arguments, Scope& into);

  // names.cpp
  Object lookup(llvm::StringRef name);
  std::optional<Object> lookupBuiltin(llvm::StringRef name);
  std::optional<Object> member(Namespace space, llvm::StringRef name);
  std::optional<Object> property(Object base, llvm::StringRef name);
  const Deferred* defer(llvm::function_ref<void()> work, bool takesRaised = false);
  std::optional<Object> captureOf(llvm::StringRef name);
  void runImport(const ImportStmt& stmt);

  // suggestions.cpp
  [[noreturn]] void failSyntax(std::string_view what);
  std::string declarationAt(Loc loc, llvm::StringRef hint);
  void failComputed(const Expr& expr, const Deferred& why);
  void failWritten(const Expr& array, Loc loc);
  [[noreturn]] void undefined(llvm::StringRef name, Scope* from);
  [[noreturn]] void noMember(Loc loc, llvm::StringRef path, llvm::StringRef name,
                             llvm::ArrayRef<llvm::StringRef> known);

  // captures.cpp
  void declare(llvm::StringRef name, const Expr& annotation);
  [[noreturn]] void failCaptureType(llvm::StringRef name, const Expr& annotation);
  void declareScalar(llvm::StringRef name, ir::Type type);
  static bool declares(const Expr& annotation);
  bool declareAvailable(llvm::StringRef name);
  ir::Extent namedOrConstant(const std::string& extent);
  std::optional<Object> parameterCapture(const Parameter& parameter);
  void declareTensor(llvm::StringRef name, DType dtype, const Expr* dims);
  ir::Extent extent(const Expr& dim);
  ir::Extent namedExtent(llvm::StringRef name, Loc loc);
  void warnOfCase(llvm::StringRef name, Loc loc);

  class Deeper;

  Scope* scope = &globals;
  const Scope* watched = nullptr; // the scope of evalWith()
  Object returned;
  llvm::DenseMap<const void*, const Deferred*> spoiled; // objects that were changed in an unknown way
  llvm::DenseMap<unsigned, const Deferred*> written;    // captured tensors that were changed in an unknown way
  // Where names are assigned outside of mods whose values could not be evaluated, by the place of the reason, and name;
  // and whether they are the module's. Others are told only in a mod.
  std::map<std::pair<uint32_t, llvm::StringRef>, std::pair<Loc, bool>> computed;
  // Names, with the scope or object that holds them, that mean a capture because their values could not be evaluated.
  std::set<std::pair<const void*, std::string>> standIns;
  llvm::DenseSet<const BinaryExpr*> mixedBits; // `flag & x` of a bool and something else
  bool isTryingOut = false;                    // whether in tryOut(): parameters declare nothing
  bool isTriedOut = false;                     // whether its budget, as large as the mod's, is used up
  uint64_t stepsTried = 0;
  unsigned tries = 0;     // `try` bodies under evaluation: what they raise need not end the launch
  unsigned depth = 0;     // expressions and statements under evaluation
  unsigned callDepth = 0; // functions under evaluation
};

} // namespace attnc::dsl
