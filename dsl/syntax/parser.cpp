// In: a text. Out: its statements. After an error the parser continues at the next statement, so that one run shows
// several errors. Not: what a statement means. A statement without meaning in the mod language becomes an
// UnsupportedStmt.
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

  /// Skips the rest of the line and the block that belongs to it.
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

  /// compound = { decorator } ( def | class ) | if | while | for | try | with | async | match. Returns null if none
  /// starts here.
  Stmt* parseCompound() {
    switch (peek().kind) {
    case Tok::KDef: return parseDef();
    case Tok::KIf: return parseIf();
    case Tok::KWhile: return parseWhile();
    case Tok::KFor: return parseFor();
    case Tok::KClass: return parseClass();
    case Tok::KTry: return parseTry();
    case Tok::KWith: return parseWith();
    case Tok::KAsync: return parseAsync();
    case Tok::At: return parseDecorated();
    case Tok::Name: return isMatch() ? parseMatch() : nullptr;
    default: return nullptr;
    }
  }

  /// decorated = "@" expression NEWLINE { "@" expression NEWLINE } ( def | class )
  Stmt* parseDecorated() {
    std::vector<Expr*> decorators;
    while (accept(Tok::At)) {
      decorators.push_back(parseExpression());
      expect(Tok::Newline, "the end of the line");
    }
    Stmt* stmt = is(Tok::KClass) ? parseClass() : is(Tok::KAsync) ? parseAsync() : nullptr;
    if (!stmt && !is(Tok::KDef)) unexpected("a function or a class");
    if (!stmt) stmt = parseDef();
    if (auto* def = llvm::dyn_cast<DefStmt>(stmt)) def->decorators = std::move(decorators);
    if (auto* made = llvm::dyn_cast<ClassStmt>(stmt)) made->decorators = std::move(decorators);
    return stmt;
  }

  /// class = "class" NAME [ "(" arguments ")" ] block
  Stmt* parseClass() {
    auto* stmt = node<ClassStmt>(next().loc);
    Token name = parseName("the class's name");
    stmt->function = ast.arena.make<FunctionNode>();
    stmt->function->name = text(name.loc);
    stmt->function->loc = name.loc;
    addLocal(stmt->function->name);
    skipTypeParameters();
    if (accept(Tok::LeftParen))
      while (!accept(Tok::RightParen)) {
        const bool isKeyword = is(Tok::Name) && peek(1).kind == Tok::Equal;
        const bool isMetaclass = isKeyword && text(peek().loc) == "metaclass";
        if (isKeyword) next(), next();
        if (!accept(Tok::StarStar)) accept(Tok::Star);
        Expr* base = parseExpression();
        if (isMetaclass) stmt->metaclass = base;
        if (!isKeyword) stmt->bases.push_back(base);
        if (!is(Tok::RightParen)) expect(Tok::Comma, "`)` or `,`");
      }
    parseBody(*stmt->function);
    return stmt;
  }

  /// Parses the block of a function or a class.
  void parseBody(FunctionNode& function) {
    functions.push_back(&function);
    unsigned outerLoops = std::exchange(loops, 0);
    auto restore = llvm::make_scope_exit([&] { loops = outerLoops; });
    function.body = parseBlock();
    functions.pop_back();
  }

  /// try = "try" block { "except" [ "*" ] [ expressions [ "as" NAME ] ] block } [ "else" block ] [ "finally" block ]
  Stmt* parseTry() {
    auto* stmt = node<TryStmt>(next().loc);
    stmt->body = parseBlock();
    while (accept(Tok::KExcept)) {
      Handler handler;
      accept(Tok::Star);
      if (!is(Tok::Colon)) handler.type = parseExpressions();
      if (accept(Tok::KAs)) {
        handler.name = text(parseName("a name").loc);
        addLocal(handler.name);
      }
      handler.body = parseBlock();
      stmt->handlers.push_back(std::move(handler));
    }
    if (accept(Tok::KElse)) stmt->otherwise = parseBlock();
    const bool hasFinally = accept(Tok::KFinally);
    if (hasFinally) stmt->finally = parseBlock();
    if (stmt->handlers.empty() && !hasFinally) unexpected("`except` or `finally`");
    return stmt;
  }

  /// with = "with" ( item { "," item } | "(" item { "," item } [ "," ] ")" ) block;  item = expression [ "as" target ]
  Stmt* parseWith() {
    auto* stmt = node<WithStmt>(next().loc);
    const size_t begin = at;
    const bool inParens = is(Tok::LeftParen) && closesBefore(Tok::Colon);
    if (inParens) next();
    do {
      if (inParens && is(Tok::RightParen)) break;
      Expr* context = parseExpression();
      Expr* target = nullptr;
      if (accept(Tok::KAs)) {
        target = parseTarget();
        checkTarget(target);
      }
      stmt->items.emplace_back(context, target);
    } while (accept(Tok::Comma));
    if (inParens) expect(Tok::RightParen, "`)` or `,`");
    if (at == begin) unexpected("an expression");
    stmt->body = parseBlock();
    return stmt;
  }

  /// Whether the bracket that opens here is closed right before a token of this kind.
  bool closesBefore(Tok kind) const {
    size_t open = 0, ahead = 0;
    do {
      Tok token = peek(ahead++).kind;
      if (token == Tok::LeftParen || token == Tok::LeftBracket || token == Tok::LeftBrace) ++open;
      if (token == Tok::RightParen || token == Tok::RightBracket || token == Tok::RightBrace) --open;
      if (token == Tok::End) return false;
    } while (open);
    return peek(ahead).kind == kind;
  }

  /// async = "async" ( def | for | with )
  Stmt* parseAsync() {
    Loc begin = next().loc;
    switch (peek().kind) {
    case Tok::KDef: {
      auto* def = llvm::cast<DefStmt>(parseDef());
      def->function->unsupported = "an `async` function";
      return def;
    }
    case Tok::KFor:
    case Tok::KWith: {
      auto* stmt = node<UnsupportedStmt>(begin);
      stmt->what = "`async`";
      stmt->body = {is(Tok::KFor) ? parseFor() : parseWith()};
      return stmt;
    }
    default: unexpected("`def`, `for` or `with`");
    }
  }

  /// `match` is a name unless a subject, a colon and a block follow.
  bool isMatch() const {
    if (text(peek().loc) != "match") return false;
    switch (peek(1).kind) {
    case Tok::Name:
    case Tok::Int:
    case Tok::String:
    case Tok::Minus:
    case Tok::LeftParen:
    case Tok::LeftBracket:
    case Tok::LeftBrace:
    case Tok::Star:
    case Tok::KNot:
    case Tok::KNone:
    case Tok::KTrue:
    case Tok::KFalse: break;
    default: return false;
    }
    size_t ahead = 1;
    while (peek(ahead).kind != Tok::Newline && peek(ahead).kind != Tok::End) ++ahead;
    return peek(ahead - 1).kind == Tok::Colon && peek(ahead).kind == Tok::Newline &&
           peek(ahead + 1).kind == Tok::Indent;
  }

  /// match = "match" expressions ":" NEWLINE INDENT { "case" pattern block } DEDENT. Patterns are skipped.
  Stmt* parseMatch() {
    auto* stmt = node<UnsupportedStmt>(next().loc);
    stmt->what = "`match`";
    parseExpressions();
    expect(Tok::Colon, "`:`");
    expect(Tok::Newline, "the end of the line");
    if (++blocks > kMaxBlocks) diagnostics.fail(peek().loc, diag::nestedTooDeeply, Count(kMaxBlocks));
    next(); // the indent
    while (!accept(Tok::Dedent) && !is(Tok::End)) {
      if (!is(Tok::Name) || text(peek().loc) != "case") unexpected("`case`");
      next();
      for (size_t open = 0; !is(Tok::Newline) && !is(Tok::End) && (open || !is(Tok::Colon)); next()) {
        if (is(Tok::LeftParen) || is(Tok::LeftBracket) || is(Tok::LeftBrace)) ++open;
        if (is(Tok::RightParen) || is(Tok::RightBracket) || is(Tok::RightBrace)) --open;
        if (is(Tok::Name)) addLocal(text(peek().loc));
      }
      for (Stmt* inner : parseBlock()) stmt->body.push_back(inner);
    }
    --blocks;
    return stmt;
  }

  /// Skips [T, *Ts] of a function or a class, which has no effect.
  void skipTypeParameters() {
    if (!accept(Tok::LeftBracket)) return;
    for (size_t open = 1; open; next()) {
      if (is(Tok::LeftBracket)) ++open;
      if (is(Tok::RightBracket)) --open;
      if (is(Tok::End)) unexpected("`]`");
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
    skipTypeParameters();
    expect(Tok::LeftParen, "`(`");
    parseParameters(*function, Tok::RightParen);
    expect(Tok::RightParen, "`)` or `,`");
    if (accept(Tok::Arrow)) parseExpression();
    parseBody(*function);
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
      if (!is(Tok::Newline) && !is(Tok::Semicolon)) stmt->exception = parseExpressions();
      if (accept(Tok::KFrom)) parseExpression();
      return stmt;
    }
    case Tok::KDel: {
      auto* stmt = node<DelStmt>(next().loc);
      Expr* targets = parseExpressions();
      checkTarget(targets);
      const auto* several = llvm::dyn_cast<SequenceExpr>(targets);
      stmt->targets = several ? several->items : std::vector<Expr*>{targets};
      return stmt;
    }
    case Tok::KGlobal:
    case Tok::KNonlocal: return parseScope();
    case Tok::Name:
      // type X = ...: only annotations use X
      if (text(begin) == "type" && peek(1).kind == Tok::Name) {
        next();
        auto* stmt = node<AssignStmt>(begin);
        Token name = parseName("a name");
        skipTypeParameters();
        expect(Tok::Equal, "`=`");
        addLocal(text(name.loc));
        auto* target = node<NameExpr>(name.loc);
        target->name = text(name.loc);
        stmt->targets = {target};
        stmt->value = parseExpressions();
        return stmt;
      }
      return parseAssignment();
    default: return parseAssignment();
    }
  }

  /// scope = ( "global" | "nonlocal" ) NAME { "," NAME }
  Stmt* parseScope() {
    auto* stmt = node<PassStmt>(peek().loc);
    const bool isGlobal = next().kind == Tok::KGlobal;
    do {
      llvm::StringRef name = text(parseName("a name").loc);
      if (functions.empty()) continue;
      (isGlobal ? functions.back()->globals : functions.back()->nonlocals).insert(name);
      functions.back()->locals.erase(name);
    } while (accept(Tok::Comma));
    return stmt;
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
    stmt->moduleLoc = peek().loc;
    while (is(Tok::Dot) || is(Tok::Ellipsis)) {
      stmt->module += text(next().loc);
      stmt->isRelative = true;
    }
    if (!stmt->isRelative || !is(Tok::KImport)) {
      Loc loc = peek().loc;
      stmt->module += parseDotted(loc);
      stmt->moduleLoc.end = loc.end;
    }
    expect(Tok::KImport, "`import`");
    if (accept(Tok::Star)) {
      stmt->isStar = true;
      return stmt;
    }
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
    if (target->kind == ExprKind::Sequence) diagnostics.fail(target->loc, diag::badTarget);
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
    case ExprKind::Starred: return checkTarget(llvm::cast<StarredExpr>(target)->value);
    case ExprKind::Sequence:
      for (Expr* item : llvm::cast<SequenceExpr>(target)->items) checkTarget(item);
      return;
    default: diagnostics.fail(target->loc, diag::badTarget);
    }
  }

  unsigned blocks = 0;
  unsigned loops = 0; // loops around the statement, within its function
};

} // namespace

std::unique_ptr<Ast> parse(uint32_t source, Diagnostics& diagnostics) {
  auto ast = std::make_unique<Ast>();
  std::vector<Token> tokens = lex(source, diagnostics);
  if (diagnostics.empty()) Parser(std::move(tokens), diagnostics, *ast).parseProgram();
  return ast;
}

} // namespace attnc::dsl
