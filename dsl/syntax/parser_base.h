// What the parser of expressions and the parser of statements share: the cursor over tokens, node construction, and the
// limits on nesting.
#pragma once

#include "dsl/limits.h"
#include "dsl/syntax/ast.h"
#include "dsl/syntax/lexer.h"

#include <algorithm>

namespace attnc::dsl {

class ParserBase {
protected:
  ParserBase(std::vector<Token> tokens, Diagnostics& diagnostics, Ast& ast)
      : diagnostics(diagnostics), ast(ast), tokens(std::move(tokens)) {}

  const Token& peek(size_t ahead = 0) const { return tokens[std::min(at + ahead, tokens.size() - 1)]; }
  bool is(Tok kind) const { return peek().kind == kind; }
  Token next() { return tokens[at + 1 < tokens.size() ? at++ : at]; }
  bool accept(Tok kind) {
    if (!is(kind)) return false;
    next();
    return true;
  }
  /// Consumes a token of this kind. For another one, reports an error that names `what` was expected.
  Token expect(Tok kind, const char* what) {
    if (!is(kind)) unexpected(what);
    return next();
  }
  [[noreturn]] void unexpected(const char* what);
  /// Binds the name in the function that is being parsed.
  void addLocal(llvm::StringRef name) {
    if (functions.empty()) return;
    FunctionNode& function = *functions.back();
    if (!function.globals.contains(name) && !function.nonlocals.contains(name)) function.locals.insert(name);
  }

  llvm::StringRef text(Loc loc) const {
    return diagnostics.source(loc.text).text.substr(loc.begin, loc.end - loc.begin);
  }
  Loc from(Loc begin) const { return {begin.begin, at ? tokens[at - 1].loc.end : begin.end, begin.text}; }

  template <class T> T* node(Loc loc) {
    T* made = ast.arena.make<T>();
    made->kind = T::kKind;
    made->loc = loc;
    return made;
  }

  /// Sets the height of an expression from its parts (null ones are skipped) and returns the expression.
  template <class T> T* over(T* expr, std::initializer_list<const Expr*> parts) {
    for (const Expr* part : parts) raise(expr, part, 1);
    return expr;
  }
  void raise(Expr* expr, const Expr* part, unsigned by) {
    if (part) expr->height = std::max(expr->height, part->height + by);
    if (expr->height > kMaxNesting) diagnostics.fail(expr->loc, diag::nestedTooDeeply, Count(kMaxNesting));
  }

  /// One level of recursion of the parser.
  class Nested {
  public:
    explicit Nested(ParserBase& parser) : depth(parser.depth) {
      if (++depth > kMaxNesting) {
        --depth;
        parser.diagnostics.fail(parser.peek().loc, diag::nestedTooDeeply, Count(kMaxNesting));
      }
    }
    ~Nested() { --depth; }
    Nested(const Nested&) = delete;

  private:
    unsigned& depth;
  };

  Diagnostics& diagnostics;
  Ast& ast;
  std::vector<Token> tokens;
  size_t at = 0;
  unsigned depth = 0;
  std::vector<FunctionNode*> functions; // defs and lambdas that are being parsed, innermost last
};

/// Grammar productions of expressions; see dsl/SPEC.md.
class ExpressionParser : public ParserBase {
protected:
  using ParserBase::ParserBase;

  Expr* parseExpressions(); ///< one expression, or a tuple of several
  Expr* parseExpression();
  Expr* parseTargets(); ///< the targets after `for`
  Expr* parseTarget() { return is(Tok::Star) ? parseStarOrExpression() : parsePostfix(); }
  void parseParameters(FunctionNode& function, Tok close);
  Token parseName(const char* what) { return expect(Tok::Name, what); }

private:
  Expr* parseStarOrExpression();
  Expr* parseLambda();
  Expr* parseBoolOp(bool isAnd);
  Expr* parseNot();
  Expr* parseComparison();
  bool parseCompareOp(CompareOp& op);
  Expr* parseBinary(int minimum);
  Expr* parseUnary();
  Expr* parsePower();
  Expr* parsePostfix();
  Expr* parseCall(Expr* callee);
  Expr* parseSubscript(Expr* base);
  Expr* parseSliceItem();
  Expr* parseAtom();
  Expr* parseParenthesized();
  Expr* parseList();
  Expr* parseBraces();
  Expr* parseYield();
  Expr* unsupported(Loc loc, const char* what);
  ComprehensionExpr* parseComprehension(Expr* element, Loc begin);
  Expr* parseString();
  void parseParameter(FunctionNode& function, bool& keywordOnly, Tok close);
};

} // namespace attnc::dsl
