// The syntax tree. Nodes live in an Arena and point at one another; names are views of the text.
//
// The height of an expression is bounded (kMaxNesting), so a walk may recurse, with one exception: the left operands of
// Binary form a chain of any length (a + b + c + ...), which a walk must follow in a loop.
#pragma once

#include "dsl/arena.h"
#include "dsl/diagnostics.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/ADT/StringSet.h>
#include <llvm/Support/Casting.h>

#include <string>
#include <vector>

namespace attnc::dsl {

enum class BinaryOp : uint8_t { Add, Sub, Mul, Div, FloorDiv, Mod, Pow, MatMul, Shl, Shr, And, Or, Xor };
enum class UnaryOp : uint8_t { Neg, Pos, Invert, Not };
enum class CompareOp : uint8_t { Eq, Ne, Lt, Le, Gt, Ge, Is, IsNot, In, NotIn };
const char* spelling(BinaryOp op);
const char* spelling(UnaryOp op);
const char* spelling(CompareOp op);

enum class ExprKind : uint8_t {
  None,
  Ellipsis,
  Bool,
  Int,
  Float,
  String,
  Name,
  Unary,
  Binary,
  BoolOp,
  Compare,
  Conditional,
  Call,
  Attribute,
  Subscript,
  Slice,
  Sequence,
  Lambda,
  Comprehension,
  Starred,
  Dict,
  Named,
  Unsupported
};

struct Expr {
  ExprKind kind;
  Loc loc;
  unsigned height = 1;
};

template <ExprKind K> struct ExprOf : Expr {
  static constexpr ExprKind kKind = K;
  static bool classof(const Expr* expr) { return expr->kind == K; }
};

struct NoneExpr : ExprOf<ExprKind::None> {};
struct EllipsisExpr : ExprOf<ExprKind::Ellipsis> {};
struct BoolExpr : ExprOf<ExprKind::Bool> {
  bool value = false;
};
struct IntExpr : ExprOf<ExprKind::Int> {
  int64_t value = 0;
};
struct FloatExpr : ExprOf<ExprKind::Float> {
  double value = 0;
};
struct StringExpr : ExprOf<ExprKind::String> {
  std::string value;
};
struct NameExpr : ExprOf<ExprKind::Name> {
  llvm::StringRef name;
};
struct UnaryExpr : ExprOf<ExprKind::Unary> {
  UnaryOp op{};
  Expr* operand = nullptr;
};
struct BinaryExpr : ExprOf<ExprKind::Binary> {
  BinaryOp op{};
  Expr* left = nullptr;
  Expr* right = nullptr;
};
/// a and b and c; a or b or c.
struct BoolOpExpr : ExprOf<ExprKind::BoolOp> {
  bool isAnd = false;
  std::vector<Expr*> operands;
};
/// first op operand op operand ...
struct CompareExpr : ExprOf<ExprKind::Compare> {
  Expr* first = nullptr;
  std::vector<std::pair<CompareOp, Expr*>> rest;
};
struct ConditionalExpr : ExprOf<ExprKind::Conditional> {
  Expr *condition = nullptr, *yes = nullptr, *no = nullptr;
};
struct Keyword {
  llvm::StringRef name; ///< empty for `**value`
  Loc loc;
  Expr* value = nullptr;
};
/// Positional arguments may be Starred.
struct CallExpr : ExprOf<ExprKind::Call> {
  Expr* callee = nullptr;
  std::vector<Expr*> arguments;
  std::vector<Keyword> keywords;
};
struct AttributeExpr : ExprOf<ExprKind::Attribute> {
  Expr* base = nullptr;
  llvm::StringRef name;
};
struct SubscriptExpr : ExprOf<ExprKind::Subscript> {
  Expr *base = nullptr, *index = nullptr;
};
/// Absent parts are null.
struct SliceExpr : ExprOf<ExprKind::Slice> {
  Expr *start = nullptr, *stop = nullptr, *step = nullptr;
};
/// A tuple or a list.
struct SequenceExpr : ExprOf<ExprKind::Sequence> {
  bool isList = false;
  std::vector<Expr*> items;
};
struct ComprehensionClause {
  Expr *target = nullptr, *iterable = nullptr;
  std::vector<Expr*> conditions;
};
/// A list comprehension, a generator expression or a set comprehension, all evaluated as lists. With a `key`, a dict
/// comprehension.
struct ComprehensionExpr : ExprOf<ExprKind::Comprehension> {
  Expr *key = nullptr, *element = nullptr;
  std::vector<ComprehensionClause> clauses;
};
struct StarredExpr : ExprOf<ExprKind::Starred> {
  Expr* value = nullptr;
};
/// {key: value, **value}. The key of `**value` is null.
struct DictExpr : ExprOf<ExprKind::Dict> {
  std::vector<std::pair<Expr*, Expr*>> items;
};
/// (name := value)
struct NamedExpr : ExprOf<ExprKind::Named> {
  NameExpr* target = nullptr;
  Expr* value = nullptr;
};
/// Python that has no meaning in the mod language. It is an error when it is evaluated. `what` is null for an int
/// beyond 64 bits.
struct UnsupportedExpr : ExprOf<ExprKind::Unsupported> {
  const char* what = nullptr;
};

enum class StmtKind : uint8_t {
  Expression,
  Assign,
  AugAssign,
  AnnAssign,
  Return,
  If,
  For,
  While,
  Break,
  Continue,
  Pass,
  Def,
  Import,
  Assert,
  Raise,
  Class,
  Try,
  With,
  Del,
  Unsupported
};

struct Stmt {
  StmtKind kind;
  Loc loc;
};

template <StmtKind K> struct StmtOf : Stmt {
  static constexpr StmtKind kKind = K;
  static bool classof(const Stmt* stmt) { return stmt->kind == K; }
};

using Block = std::vector<Stmt*>;

enum class ParameterKind : uint8_t { Positional, Variadic, KeywordOnly, Keywords };
struct Parameter {
  llvm::StringRef name;
  Loc loc;
  ParameterKind kind = ParameterKind::Positional;
  Expr* annotation = nullptr;
  Expr* defaultValue = nullptr;
};

/// The common part of a def and a lambda.
struct FunctionNode {
  llvm::StringRef name;
  Loc loc; ///< place of the name
  std::vector<Parameter> parameters;
  Block body;                           ///< empty for a lambda
  Expr* result = nullptr;               ///< null for a def
  llvm::StringSet<> locals;             ///< names that the body binds, parameters included
  llvm::StringSet<> globals, nonlocals; ///< names that the body binds elsewhere
  const char* unsupported = nullptr;    ///< why it cannot be called ("a generator"), or null
};

struct LambdaExpr : ExprOf<ExprKind::Lambda> {
  FunctionNode* function = nullptr;
};

struct ExpressionStmt : StmtOf<StmtKind::Expression> {
  Expr* value = nullptr;
};
/// target = target = value.
struct AssignStmt : StmtOf<StmtKind::Assign> {
  std::vector<Expr*> targets;
  Expr* value = nullptr;
};
struct AugAssignStmt : StmtOf<StmtKind::AugAssign> {
  BinaryOp op{};
  Expr *target = nullptr, *value = nullptr;
};
/// `value` may be null.
struct AnnAssignStmt : StmtOf<StmtKind::AnnAssign> {
  Expr *target = nullptr, *annotation = nullptr, *value = nullptr;
};
struct ReturnStmt : StmtOf<StmtKind::Return> {
  Expr* value = nullptr;
};
struct IfStmt : StmtOf<StmtKind::If> {
  std::vector<std::pair<Expr*, Block>> clauses; ///< if, elif, elif, ...
  Block otherwise;
};
struct ForStmt : StmtOf<StmtKind::For> {
  Expr *target = nullptr, *iterable = nullptr;
  Block body, otherwise;
};
struct WhileStmt : StmtOf<StmtKind::While> {
  Expr* condition = nullptr;
  Block body, otherwise;
};
struct BreakStmt : StmtOf<StmtKind::Break> {};
struct ContinueStmt : StmtOf<StmtKind::Continue> {};
struct PassStmt : StmtOf<StmtKind::Pass> {};
struct DefStmt : StmtOf<StmtKind::Def> {
  FunctionNode* function = nullptr;
  std::vector<Expr*> decorators;
};
/// `function` holds the name and the body, which is evaluated in its own scope.
struct ClassStmt : StmtOf<StmtKind::Class> {
  FunctionNode* function = nullptr;
  std::vector<Expr*> bases, decorators;
  Expr* metaclass = nullptr;
};
struct ImportedName {
  llvm::StringRef name;
  Loc loc;
  llvm::StringRef as;
};
/// `import a.b as c` (isFrom false, names hold the dotted paths) or `from module import name as other`.
struct ImportStmt : StmtOf<StmtKind::Import> {
  bool isFrom = false;
  std::string module;
  Loc moduleLoc;
  std::vector<ImportedName> names;
  std::vector<std::string> paths; ///< one dotted path for each name of `import`
  bool isRelative = false, isStar = false;
};
struct AssertStmt : StmtOf<StmtKind::Assert> {
  Expr *condition = nullptr, *message = nullptr;
};
struct RaiseStmt : StmtOf<StmtKind::Raise> {
  Expr* exception = nullptr;
};
struct Handler {
  Expr* type = nullptr; ///< null: catches all
  llvm::StringRef name;
  Block body;
};
struct TryStmt : StmtOf<StmtKind::Try> {
  Block body;
  std::vector<Handler> handlers;
  Block otherwise, finally;
};
struct WithStmt : StmtOf<StmtKind::With> {
  std::vector<std::pair<Expr*, Expr*>> items; ///< a context, and its target or null
  Block body;
};
struct DelStmt : StmtOf<StmtKind::Del> {
  std::vector<Expr*> targets;
};
/// Python that has no meaning in the mod language. It is an error when it is reached. `body` holds its statements, for
/// the names that they bind.
struct UnsupportedStmt : StmtOf<StmtKind::Unsupported> {
  const char* what = "";
  Block body;
};

/// A parsed text: its statements and their nodes.
struct Ast {
  Arena arena;
  Block body;
};

/// Returns the tree as text: one s-expression a statement, blocks indented.
std::string toText(const Ast& ast);

} // namespace attnc::dsl
