// In: a text. Out: its statements. After an error the parser goes on at the next statement, so that one run shows
// several. Not: classes, exceptions, `with`, `del`, `global`, decorators, `match`; each is refused by name.
#include "dsl/syntax/parser.h"

#include "dsl/syntax/parser_base.h"

#include <llvm/ADT/ScopeExit.h>

#include <optional>

namespace attnc::dsl {

namespace {

class Parser : public ExpressionParser {
public:
  Parser(std::vector<Token> tokens, Diagnostics& diagnostics, Ast& ast)
      : ExpressionParser(std::move(tokens), diagnostics, ast) {}

  /// program = { statement } END
  void parseProgram() {
    while (!is(Tok::End)) parseStatement(ast.body);
  }

private:
  /// statement = compound | simple { ";" simple } NEWLINE. An error is reported and the statement dropped.
  void parseStatement(Block& into) {
    size_t openFunctions = functions.size();
    unsigned openBlocks = blocks;
    size_t begin = at;
    try {
      if (Stmt* compound = parseCompound()) {
        into.push_back(compound);
        return;
      }
      do into.push_back(parseSimple());
      while (accept(Tok::Semicolon) && !is(Tok::Newline));
      expect(Tok::Newline, "the end of the line");
    } catch (const Abort& abort) {
      if (abort.fatal) throw;
      functions.resize(openFunctions);
      blocks = openBlocks;
      synchronize(begin);
    }
  }

  /// Skips the rest of the line and the block that hangs on it.
  void synchronize(size_t begin) {
    if (at == begin && !is(Tok::End)) next();
    while (!is(Tok::End) && !is(Tok::Newline) && !is(Tok::Indent) && !is(Tok::Dedent)) next();
    accept(Tok::Newline);
    if (!is(Tok::Indent)) return;
    size_t open = 0;
    do {
      if (is(Tok::Indent)) ++open;
      if (is(Tok::Dedent)) --open;
      if (is(Tok::End)) return;
      next();
    } while (open);
  }

  /// compound = def | if | while | for; null if none starts here.
  Stmt* parseCompound() {
    switch (peek().kind) {
    case Tok::KDef: return parseDef();
    case Tok::KIf: return parseIf();
    case Tok::KWhile: return parseWhile();
    case Tok::KFor: return parseFor();
    case Tok::KClass: unsupported(peek().loc, "a class");
    case Tok::KTry: unsupported(peek().loc, "`try`");
    case Tok::KWith: unsupported(peek().loc, "`with`");
    case Tok::KAsync: unsupported(peek().loc, "`async`");
    case Tok::At: unsupported(peek().loc, "a decorator");
    default: return nullptr;
    }
  }

  /// block = ":" ( NEWLINE INDENT statement { statement } DEDENT | simple { ";" simple } NEWLINE )
  Block parseBlock() {
    expect(Tok::Colon, "`:`");
    if (++blocks > kMaxBlocks) diagnostics.fail(peek().loc, diag::nestedTooDeeply, Count(kMaxBlocks));
    Block block;
    if (!accept(Tok::Newline)) {
      do block.push_back(parseSimple());
      while (accept(Tok::Semicolon) && !is(Tok::Newline));
      expect(Tok::Newline, "the end of the line");
    } else {
      if (!is(Tok::Indent)) diagnostics.fail(peek().loc, diag::expectedBlock);
      next();
      while (!is(Tok::Dedent) && !is(Tok::End)) parseStatement(block);
      accept(Tok::Dedent);
    }
    --blocks;
    return block;
  }

  /// def = "def" NAME "(" [ parameters ] ")" [ "->" expression ] block
  Stmt* parseDef() {
    Loc begin = next().loc;
    Token name = parseName("the function's name");
    auto* def = node<DefStmt>(begin);
    auto* function = ast.arena.make<FunctionNode>();
    def->function = function;
    function->name = text(name.loc);
    function->loc = name.loc;
    addLocal(function->name);
    expect(Tok::LeftParen, "`(`");
    parseParameters(*function, Tok::RightParen);
    expect(Tok::RightParen, "`)` or `,`");
    if (accept(Tok::Arrow)) parseExpression();
    functions.push_back(function);
    unsigned outerLoops = std::exchange(loops, 0);
    auto restore = llvm::make_scope_exit([&] { loops = outerLoops; });
    function->body = parseBlock();
    functions.pop_back();
    return def;
  }

  /// if = "if" expression block { "elif" expression block } [ "else" block ]
  Stmt* parseIf() {
    auto* stmt = node<IfStmt>(peek().loc);
    do {
      next();
      Expr* condition = parseExpression();
      stmt->clauses.emplace_back(condition, parseBlock());
    } while (is(Tok::KElif));
    if (accept(Tok::KElse)) stmt->otherwise = parseBlock();
    return stmt;
  }

  Block parseLoopBody() {
    ++loops;
    auto restore = llvm::make_scope_exit([&] { --loops; });
    return parseBlock();
  }

  /// while = "while" expression block [ "else" block ]
  Stmt* parseWhile() {
    auto* stmt = node<WhileStmt>(next().loc);
    stmt->condition = parseExpression();
    stmt->body = parseLoopBody();
    if (accept(Tok::KElse)) stmt->otherwise = parseBlock();
    return stmt;
  }

  /// for = "for" targets "in" expressions block [ "else" block ]
  Stmt* parseFor() {
    auto* stmt = node<ForStmt>(next().loc);
    stmt->target = parseTargets();
    checkTarget(stmt->target);
    expect(Tok::KIn, "`in`");
    stmt->iterable = parseExpressions();
    stmt->body = parseLoopBody();
    if (accept(Tok::KElse)) stmt->otherwise = parseBlock();
    return stmt;
  }

  /// simple = "pass" | "break" | "continue" | return | import | from_import | assert | raise | assignment
  Stmt* parseSimple() {
    Loc begin = peek().loc;
    switch (peek().kind) {
    case Tok::KPass: return node<PassStmt>(next().loc);
    case Tok::KBreak:
    case Tok::KContinue:
      if (!loops) diagnostics.fail(begin, diag::outsideLoop, std::string_view(text(begin)));
      if (next().kind == Tok::KBreak) return node<BreakStmt>(begin);
      return node<ContinueStmt>(begin);
    case Tok::KReturn: return parseReturn();
    case Tok::KImport: return parseImport();
    case Tok::KFrom: return parseFromImport();
    case Tok::KAssert: return parseAssert();
    case Tok::KRaise: {
      auto* stmt = node<RaiseStmt>(next().loc);
      if (!is(Tok::Newline) && !is(Tok::Semicolon)) parseExpressions();
      if (accept(Tok::KFrom)) parseExpression();
      return stmt;
    }
    case Tok::KDel: unsupported(begin, "`del`");
    case Tok::KGlobal: unsupported(begin, "`global`");
    case Tok::KNonlocal: unsupported(begin, "`nonlocal`");
    default: return parseAssignment();
    }
  }

  /// return = "return" [ expressions ]
  Stmt* parseReturn() {
    auto* stmt = node<ReturnStmt>(next().loc);
    if (functions.empty()) diagnostics.fail(stmt->loc, diag::returnOutside);
    if (!is(Tok::Newline) && !is(Tok::Semicolon)) stmt->value = parseExpressions();
    return stmt;
  }

  /// assert = "assert" expression [ "," expression ]
  Stmt* parseAssert() {
    auto* stmt = node<AssertStmt>(next().loc);
    stmt->condition = parseExpression();
    if (accept(Tok::Comma)) stmt->message = parseExpression();
    return stmt;
  }

  /// dotted = NAME { "." NAME }
  std::string parseDotted(Loc& loc) {
    Token first = parseName("a module's name");
    std::string path(text(first.loc));
    while (accept(Tok::Dot)) path += "." + text(parseName("a name").loc).str();
    loc = from(first.loc);
    return path;
  }

  void parseAlias(ImportedName& imported) {
    if (accept(Tok::KAs)) imported.as = text(parseName("a name").loc);
  }

  /// import = "import" dotted [ "as" NAME ] { "," dotted [ "as" NAME ] }
  Stmt* parseImport() {
    auto* stmt = node<ImportStmt>(next().loc);
    do {
      ImportedName imported;
      stmt->paths.push_back(parseDotted(imported.loc));
      imported.name = text(imported.loc).take_until([](char c) { return c == '.'; });
      parseAlias(imported);
      addLocal(imported.as.empty() ? imported.name : imported.as);
      stmt->names.push_back(imported);
    } while (accept(Tok::Comma));
    return stmt;
  }

  /// from_import = "from" dotted "import" ( names | "(" names [ "," ] ")" );  names = NAME [ "as" NAME ] { "," ... }
  Stmt* parseFromImport() {
    auto* stmt = node<ImportStmt>(next().loc);
    stmt->isFrom = true;
    if (is(Tok::Dot) || is(Tok::Ellipsis)) unsupported(peek().loc, "a relative import");
    stmt->module = parseDotted(stmt->moduleLoc);
    expect(Tok::KImport, "`import`");
    if (is(Tok::Star)) unsupported(peek().loc, "`import *`");
    bool inParens = accept(Tok::LeftParen);
    do {
      if (inParens && is(Tok::RightParen)) break;
      Token name = parseName("a name");
      ImportedName imported{text(name.loc), name.loc, {}};
      parseAlias(imported);
      addLocal(imported.as.empty() ? imported.name : imported.as);
      stmt->names.push_back(imported);
    } while (accept(Tok::Comma));
    if (inParens) expect(Tok::RightParen, "`)` or `,`");
    return stmt;
  }

  static std::optional<BinaryOp> augmented(Tok kind) {
    switch (kind) {
    case Tok::PlusEqual: return BinaryOp::Add;
    case Tok::MinusEqual: return BinaryOp::Sub;
    case Tok::StarEqual: return BinaryOp::Mul;
    case Tok::SlashEqual: return BinaryOp::Div;
    case Tok::SlashSlashEqual: return BinaryOp::FloorDiv;
    case Tok::PercentEqual: return BinaryOp::Mod;
    case Tok::StarStarEqual: return BinaryOp::Pow;
    case Tok::AtEqual: return BinaryOp::MatMul;
    case Tok::ShlEqual: return BinaryOp::Shl;
    case Tok::ShrEqual: return BinaryOp::Shr;
    case Tok::AndEqual: return BinaryOp::And;
    case Tok::OrEqual: return BinaryOp::Or;
    case Tok::XorEqual: return BinaryOp::Xor;
    default: return std::nullopt;
    }
  }

  /// assignment = expressions { "=" expressions } | postfix OP "=" expressions | postfix ":" expression [ "="
  /// expressions ]
  Stmt* parseAssignment() {
    Loc begin = peek().loc;
    Expr* first = parseExpressions();
    if (is(Tok::Colon)) return parseAnnotated(first, begin);
    if (std::optional<BinaryOp> op = augmented(peek().kind)) {
      next();
      auto* stmt = node<AugAssignStmt>(begin);
      checkTarget(first);
      stmt->op = *op;
      stmt->target = first;
      stmt->value = parseExpressions();
      return stmt;
    }
    if (!is(Tok::Equal)) {
      auto* stmt = node<ExpressionStmt>(begin);
      stmt->value = first;
      return stmt;
    }
    auto* stmt = node<AssignStmt>(begin);
    stmt->value = first;
    while (accept(Tok::Equal)) {
      checkTarget(stmt->value);
      stmt->targets.push_back(stmt->value);
      stmt->value = parseExpressions();
    }
    return stmt;
  }

  Stmt* parseAnnotated(Expr* target, Loc begin) {
    auto* stmt = node<AnnAssignStmt>(begin);
    if (target->kind != ExprKind::Name) diagnostics.fail(target->loc, diag::badTarget);
    checkTarget(target);
    next();
    stmt->target = target;
    stmt->annotation = parseExpression();
    if (accept(Tok::Equal)) stmt->value = parseExpressions();
    return stmt;
  }

  /// A target is a name, a subscript, an attribute, or a tuple or list of targets. Its names become locals of the
  /// function.
  void checkTarget(Expr* target) {
    switch (target->kind) {
    case ExprKind::Name: return addLocal(llvm::cast<NameExpr>(target)->name);
    case ExprKind::Subscript:
    case ExprKind::Attribute: return;
    case ExprKind::Sequence:
      for (Expr* item : llvm::cast<SequenceExpr>(target)->items) checkTarget(item);
      return;
    default: diagnostics.fail(target->loc, diag::badTarget);
    }
  }

  void addLocal(llvm::StringRef name) {
    if (!functions.empty()) functions.back()->locals.insert(name);
  }

  unsigned blocks = 0;
  unsigned loops = 0; // around the statement, within its function
};

} // namespace

std::unique_ptr<Ast> parse(uint32_t source, Diagnostics& diagnostics) {
  auto ast = std::make_unique<Ast>();
  std::vector<Token> tokens = lex(source, diagnostics);
  if (diagnostics.empty()) Parser(std::move(tokens), diagnostics, *ast).parseProgram();
  return ast;
}

} // namespace attnc::dsl
