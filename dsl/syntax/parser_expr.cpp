// In: tokens. Out: expression nodes. Each production has a function; binary operators use precedence climbing.
// Not: what an expression means. An expression without meaning in the mod language becomes an UnsupportedExpr.
#include "dsl/syntax/parser_base.h"

#include <optional>

namespace attnc::dsl {

namespace {

/// Returns what was meant by two tokens that do not stand together: spellings of other languages, and slips.
const char* repairOf(llvm::StringRef before, llvm::StringRef here) {
  if (before == "=" && here == ">") return "did you mean `>=`?";
  if (before == "=" && here == "<") return "did you mean `<=`?";
  if (before == "&" && here == "&") return "did you mean `&`? each side in parentheses: `(a >= b) & (c < d)`";
  if (before == "|" && here == "|") return "did you mean `|`? each side in parentheses: `(a >= b) | (c < d)`";
  if (before == "<" && here == ">") return "did you mean `!=`?";
  if (before == "==" && here == "=") return "did you mean `==`?";
  if (here == "=") return "did you mean `==`?";
  if (here == "else") return "write `a if condition else b`";
  if (here == "{") return "a function is `def mask_mod(b, h, q_idx, kv_idx):`, and its body is indented";
  if (before == "function" || before == "fn" || before == "func") return "a function begins with `def`";
  return "";
}

} // namespace

void ParserBase::unexpected(const char* what) {
  switch (peek().kind) {
  case Tok::End:
  case Tok::Newline:
    diagnostics.fail(peek().loc, diag::unexpectedEnd, what,
                     llvm::StringRef(what) == "`:`" ? "end the line with `:`" : "");
  case Tok::Indent: diagnostics.fail(peek().loc, diag::unexpectedIndent);
  case Tok::Dedent: diagnostics.fail(peek().loc, diag::expectedBlock);
  default:
    diagnostics.fail(peek().loc, diag::unexpectedToken, std::string_view(text(peek().loc).take_front(40)), what,
                     repairOf(at ? text(tokens[at - 1].loc) : "", text(peek().loc)));
  }
}

namespace {

struct Infix {
  int precedence = 0; // 0: not a binary operator
  BinaryOp op{};
};

Infix infix(Tok kind) {
  switch (kind) {
  case Tok::Pipe: return {1, BinaryOp::Or};
  case Tok::Caret: return {2, BinaryOp::Xor};
  case Tok::Amp: return {3, BinaryOp::And};
  case Tok::Shl: return {4, BinaryOp::Shl};
  case Tok::Shr: return {4, BinaryOp::Shr};
  case Tok::Plus: return {5, BinaryOp::Add};
  case Tok::Minus: return {5, BinaryOp::Sub};
  case Tok::Star: return {6, BinaryOp::Mul};
  case Tok::Slash: return {6, BinaryOp::Div};
  case Tok::SlashSlash: return {6, BinaryOp::FloorDiv};
  case Tok::Percent: return {6, BinaryOp::Mod};
  case Tok::At: return {6, BinaryOp::MatMul};
  default: return {};
  }
}

bool endsExpressions(Tok kind) {
  switch (kind) {
  case Tok::End:
  case Tok::Newline:
  case Tok::Semicolon:
  case Tok::Equal:
  case Tok::Colon:
  case Tok::RightParen:
  case Tok::RightBracket:
  case Tok::RightBrace: return true;
  default: return false;
  }
}

} // namespace

Expr* ExpressionParser::unsupported(Loc loc, const char* what) {
  auto* expr = node<UnsupportedExpr>(loc);
  expr->what = what;
  return expr;
}

/// yield = "yield" [ "from" expression | expressions ]
Expr* ExpressionParser::parseYield() {
  Nested nested(*this);
  Loc begin = next().loc;
  if (!functions.empty()) functions.back()->unsupported = "a generator";
  if (accept(Tok::KFrom))
    parseExpression();
  else if (!endsExpressions(peek().kind))
    parseExpressions();
  return unsupported(from(begin), "`yield`");
}

/// expressions = yield | star_or_expression { "," star_or_expression } [ "," ]
Expr* ExpressionParser::parseExpressions() {
  Loc begin = peek().loc;
  if (is(Tok::KYield)) return parseYield();
  Expr* first = parseStarOrExpression();
  if (!is(Tok::Comma)) return first;
  auto* tuple = node<SequenceExpr>(begin);
  tuple->items.push_back(first);
  while (accept(Tok::Comma) && !endsExpressions(peek().kind)) tuple->items.push_back(parseStarOrExpression());
  tuple->loc = from(begin);
  for (Expr* item : tuple->items) raise(tuple, item, 1);
  return tuple;
}

/// star_or_expression = "*" binary | expression
Expr* ExpressionParser::parseStarOrExpression() {
  Loc begin = peek().loc;
  if (!accept(Tok::Star)) return parseExpression();
  auto* star = node<StarredExpr>(begin);
  star->value = parseBinary(1);
  star->loc = from(begin);
  return over(star, {star->value});
}

/// expression = lambda | NAME ":=" expression | or_test [ "if" or_test "else" expression ]
Expr* ExpressionParser::parseExpression() {
  if (is(Tok::KLambda)) return parseLambda();
  Loc begin = peek().loc;
  Expr* value = parseBoolOp(/*isAnd=*/false);
  if (value->kind == ExprKind::Name && accept(Tok::Walrus)) {
    Nested nested(*this);
    auto* named = node<NamedExpr>(begin);
    named->target = llvm::cast<NameExpr>(value);
    addLocal(named->target->name);
    named->value = parseExpression();
    named->loc = from(begin);
    return over(named, {named->value});
  }
  if (!accept(Tok::KIf)) return value;
  Nested nested(*this);
  auto* conditional = node<ConditionalExpr>(begin);
  conditional->yes = value;
  conditional->condition = parseBoolOp(/*isAnd=*/false);
  expect(Tok::KElse, "`else`");
  conditional->no = parseExpression();
  conditional->loc = from(begin);
  return over(conditional, {conditional->condition, conditional->yes, conditional->no});
}

/// lambda = "lambda" [ parameters ] ":" expression
Expr* ExpressionParser::parseLambda() {
  Nested nested(*this);
  Token keyword = next();
  auto* lambda = node<LambdaExpr>(keyword.loc);
  lambda->function = ast.arena.make<FunctionNode>();
  lambda->function->name = "<lambda>";
  lambda->function->loc = keyword.loc;
  parseParameters(*lambda->function, Tok::Colon);
  expect(Tok::Colon, "`:`");
  functions.push_back(lambda->function);
  lambda->function->result = parseExpression();
  functions.pop_back();
  lambda->loc = from(keyword.loc);
  return over(lambda, {lambda->function->result});
}

/// parameters = parameter { "," parameter } [ "," ]
void ExpressionParser::parseParameters(FunctionNode& function, Tok close) {
  bool keywordOnly = false;
  while (!is(close)) {
    parseParameter(function, keywordOnly, close);
    if (!accept(Tok::Comma)) break;
  }
}

/// parameter = NAME [ ":" expression ] [ "=" expression ] | "*" [ NAME [ ":" expression ] ] | "**" NAME [ ":"
/// expression ]
///           | "/"
void ExpressionParser::parseParameter(FunctionNode& function, bool& keywordOnly, Tok close) {
  if (accept(Tok::Slash)) return;
  const bool isKeywords = accept(Tok::StarStar);
  bool isStar = !isKeywords && accept(Tok::Star);
  if (isStar && keywordOnly) unexpected("a parameter");
  if (isStar && is(Tok::Comma)) {
    keywordOnly = true;
    return;
  }
  Token name = parseName("a parameter");
  Parameter parameter{text(name.loc), name.loc};
  parameter.kind = isKeywords    ? ParameterKind::Keywords
                   : isStar      ? ParameterKind::Variadic
                   : keywordOnly ? ParameterKind::KeywordOnly
                                 : ParameterKind::Positional;
  keywordOnly |= isStar;
  if (close == Tok::RightParen && accept(Tok::Colon))
    parameter.annotation = isStar ? parseStarOrExpression() : parseExpression();
  if (!isStar && !isKeywords && accept(Tok::Equal))
    parameter.defaultValue = parseExpression();
  else if (parameter.kind == ParameterKind::Positional && !function.parameters.empty() &&
           function.parameters.back().defaultValue)
    diagnostics.report(name.loc, diag::defaultBeforeRequired, std::string_view(parameter.name));
  if (!function.locals.insert(parameter.name).second)
    diagnostics.report(name.loc, diag::duplicateParameter, std::string_view(parameter.name));
  function.parameters.push_back(parameter);
}

/// or_test = and_test { "or" and_test };  and_test = not_test { "and" not_test }
Expr* ExpressionParser::parseBoolOp(bool isAnd) {
  Loc begin = peek().loc;
  Expr* first = isAnd ? parseNot() : parseBoolOp(/*isAnd=*/true);
  Tok sign = isAnd ? Tok::KAnd : Tok::KOr;
  if (!is(sign)) return first;
  auto* expr = node<BoolOpExpr>(begin);
  expr->isAnd = isAnd;
  expr->operands.push_back(first);
  while (accept(sign)) expr->operands.push_back(isAnd ? parseNot() : parseBoolOp(/*isAnd=*/true));
  expr->loc = from(begin);
  for (Expr* operand : expr->operands) raise(expr, operand, 1);
  return expr;
}

/// not_test = "not" not_test | comparison
Expr* ExpressionParser::parseNot() {
  if (!is(Tok::KNot)) return parseComparison();
  Nested nested(*this);
  Token sign = next();
  auto* expr = node<UnaryExpr>(sign.loc);
  expr->op = UnaryOp::Not;
  expr->operand = parseNot();
  expr->loc = from(sign.loc);
  return over(expr, {expr->operand});
}

/// compare_op = "==" | "!=" | "<" | "<=" | ">" | ">=" | "is" [ "not" ] | [ "not" ] "in"
bool ExpressionParser::parseCompareOp(CompareOp& op) {
  switch (peek().kind) {
  case Tok::EqualEqual: op = CompareOp::Eq; break;
  case Tok::NotEqual: op = CompareOp::Ne; break;
  case Tok::Lt: op = CompareOp::Lt; break;
  case Tok::Le: op = CompareOp::Le; break;
  case Tok::Gt: op = CompareOp::Gt; break;
  case Tok::Ge: op = CompareOp::Ge; break;
  case Tok::KIn: op = CompareOp::In; break;
  case Tok::KIs:
    op = CompareOp::Is;
    if (peek(1).kind == Tok::KNot) {
      op = CompareOp::IsNot;
      next();
    }
    break;
  case Tok::KNot:
    if (peek(1).kind != Tok::KIn) return false;
    op = CompareOp::NotIn;
    next();
    break;
  default: return false;
  }
  next();
  return true;
}

/// comparison = binary { compare_op binary }
Expr* ExpressionParser::parseComparison() {
  Loc begin = peek().loc;
  Expr* first = parseBinary(1);
  CompareOp op;
  if (!parseCompareOp(op)) return first;
  auto* expr = node<CompareExpr>(begin);
  expr->first = first;
  raise(expr, first, 1);
  do {
    Expr* operand = parseBinary(1);
    expr->rest.emplace_back(op, operand);
    raise(expr, operand, 1);
  } while (parseCompareOp(op));
  expr->loc = from(begin);
  return expr;
}

/// binary = unary { OP unary }, OP by precedence from "|" (1) to "*" (6), all to the left
Expr* ExpressionParser::parseBinary(int minimum) {
  Loc begin = peek().loc;
  Expr* left = parseUnary();
  for (Infix sign = infix(peek().kind); sign.precedence >= minimum && sign.precedence > 0; sign = infix(peek().kind)) {
    next();
    auto* expr = node<BinaryExpr>(begin);
    expr->op = sign.op;
    expr->left = left;
    expr->right = parseBinary(sign.precedence + 1);
    expr->loc = from(begin);
    // Walks follow a chain of left operands in a loop, so it adds no height beyond the first link.
    raise(expr, left, left->kind == ExprKind::Binary ? 0 : 1);
    raise(expr, expr->right, 1);
    left = expr;
  }
  return left;
}

/// unary = ( "-" | "+" | "~" ) unary | power
Expr* ExpressionParser::parseUnary() {
  std::optional<UnaryOp> op;
  if (is(Tok::Minus)) op = UnaryOp::Neg;
  if (is(Tok::Plus)) op = UnaryOp::Pos;
  if (is(Tok::Tilde)) op = UnaryOp::Invert;
  if (!op) return parsePower();
  Nested nested(*this);
  Token sign = next();
  if (op == UnaryOp::Neg && peek().isLeast && peek(1).kind != Tok::StarStar) {
    auto* least = node<IntExpr>(sign.loc);
    least->value = INT64_MIN;
    next();
    least->loc = from(sign.loc);
    return least;
  }
  auto* expr = node<UnaryExpr>(sign.loc);
  expr->op = *op;
  expr->operand = parseUnary();
  expr->loc = from(sign.loc);
  return over(expr, {expr->operand});
}

/// power = postfix [ "**" unary ]
Expr* ExpressionParser::parsePower() {
  Loc begin = peek().loc;
  Expr* base = parsePostfix();
  if (!accept(Tok::StarStar)) return base;
  Nested nested(*this);
  auto* expr = node<BinaryExpr>(begin);
  expr->op = BinaryOp::Pow;
  expr->left = base;
  expr->right = parseUnary();
  expr->loc = from(begin);
  return over(expr, {base, expr->right});
}

/// postfix = atom { "." NAME | "(" arguments ")" | "[" subscript "]" }
Expr* ExpressionParser::parsePostfix() {
  Loc begin = peek().loc;
  if (accept(Tok::KAwait)) {
    Nested nested(*this);
    parsePostfix();
    return unsupported(from(begin), "`await`");
  }
  Expr* expr = parseAtom();
  while (true) {
    if (accept(Tok::Dot)) {
      auto* attribute = node<AttributeExpr>(begin);
      attribute->base = expr;
      attribute->name = text(parseName("a name").loc);
      attribute->loc = from(begin);
      expr = over(attribute, {expr});
    } else if (is(Tok::LeftParen)) {
      expr = parseCall(expr);
    } else if (is(Tok::LeftBracket)) {
      expr = parseSubscript(expr);
    } else {
      return expr;
    }
  }
}

/// arguments = [ argument { "," argument } [ "," ] ];  argument = [ "*" ] expression | NAME "=" expression
Expr* ExpressionParser::parseCall(Expr* callee) {
  Nested nested(*this);
  auto* call = node<CallExpr>(callee->loc);
  call->callee = callee;
  raise(call, callee, 1);
  next();
  while (!is(Tok::RightParen)) {
    Expr* value = nullptr;
    if (is(Tok::StarStar)) {
      Loc begin = next().loc;
      value = parseExpression();
      call->keywords.push_back({{}, from(begin), value});
    } else if (is(Tok::Name) && peek(1).kind == Tok::Equal) {
      Token name = next();
      next();
      value = parseExpression();
      call->keywords.push_back({text(name.loc), name.loc, value});
    } else {
      Loc begin = peek().loc;
      value = parseStarOrExpression();
      if (is(Tok::KFor) || is(Tok::KAsync)) value = parseComprehension(value, begin);
      if (!call->keywords.empty() && value->kind != ExprKind::Starred)
        diagnostics.fail(value->loc, diag::positionalAfterKeyword);
      call->arguments.push_back(value);
    }
    raise(call, value, 1);
    if (!accept(Tok::Comma)) break;
  }
  expect(Tok::RightParen, "`)` or `,`");
  call->loc = from(callee->loc);
  return call;
}

/// subscript = slice_item { "," slice_item } [ "," ]
Expr* ExpressionParser::parseSubscript(Expr* base) {
  Nested nested(*this);
  next();
  auto* subscript = node<SubscriptExpr>(base->loc);
  subscript->base = base;
  Loc begin = peek().loc;
  Expr* index = parseSliceItem();
  if (is(Tok::Comma)) {
    auto* tuple = node<SequenceExpr>(begin);
    tuple->items.push_back(index);
    while (accept(Tok::Comma) && !is(Tok::RightBracket)) tuple->items.push_back(parseSliceItem());
    tuple->loc = from(begin);
    for (Expr* item : tuple->items) raise(tuple, item, 1);
    index = tuple;
  }
  expect(Tok::RightBracket, "`]` or `,`");
  subscript->index = index;
  subscript->loc = from(base->loc);
  return over(subscript, {base, index});
}

/// slice_item = star_or_expression | [ expression ] ":" [ expression ] [ ":" [ expression ] ]
Expr* ExpressionParser::parseSliceItem() {
  Loc begin = peek().loc;
  Expr* start = is(Tok::Colon) ? nullptr : parseStarOrExpression();
  if (!accept(Tok::Colon)) return start;
  auto* slice = node<SliceExpr>(begin);
  auto part = [&]() -> Expr* {
    return is(Tok::Colon) || is(Tok::Comma) || is(Tok::RightBracket) ? nullptr : parseExpression();
  };
  slice->start = start;
  slice->stop = part();
  if (accept(Tok::Colon)) slice->step = part();
  slice->loc = from(begin);
  return over(slice, {slice->start, slice->stop, slice->step});
}

} // namespace attnc::dsl
