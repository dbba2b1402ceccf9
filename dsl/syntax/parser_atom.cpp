// In: tokens. Out: the innermost expressions: literals, names, brackets, comprehensions, and targets of assignments.
#include "dsl/syntax/parser.h"
#include "dsl/syntax/parser_base.h"
#include "dsl/syntax/string_literal.h"

namespace attnc::dsl {

/// atom = NAME | INT | FLOAT | strings | "None" | "True" | "False" | "..." | parenthesized | list
Expr* ExpressionParser::parseAtom() {
  Token token = peek();
  switch (token.kind) {
  case Tok::Name: {
    auto* expr = node<NameExpr>(next().loc);
    expr->name = text(token.loc);
    return expr;
  }
  case Tok::Int: {
    if (token.isBeyond) return unsupported(next().loc, nullptr);
    auto* expr = node<IntExpr>(next().loc);
    expr->value = token.integer;
    return expr;
  }
  case Tok::Float: {
    if (token.isBeyond) return unsupported(next().loc, "a complex number");
    auto* expr = node<FloatExpr>(next().loc);
    expr->value = token.real;
    return expr;
  }
  case Tok::KTrue:
  case Tok::KFalse: {
    auto* expr = node<BoolExpr>(next().loc);
    expr->value = token.kind == Tok::KTrue;
    return expr;
  }
  case Tok::KNone: return node<NoneExpr>(next().loc);
  case Tok::Ellipsis: return node<EllipsisExpr>(next().loc);
  case Tok::String: return parseString();
  case Tok::LeftParen: return parseParenthesized();
  case Tok::LeftBracket: return parseList();
  case Tok::LeftBrace: return parseBraces();
  default: unexpected("an expression");
  }
}

/// strings = STRING { STRING }
Expr* ExpressionParser::parseString() {
  auto* expr = node<StringExpr>(peek().loc);
  const char* beyond = nullptr;
  while (is(Tok::String)) {
    const StringLiteral literal = readString(text(next().loc));
    expr->value += literal.text;
    if (literal.prefix.find_first_not_of("rfut") != std::string::npos)
      beyond = "a string with this prefix";
    else if (literal.unsupported)
      beyond = literal.unsupported;
  }
  expr->loc = from(expr->loc);
  return beyond ? unsupported(expr->loc, beyond) : expr;
}

/// parenthesized = "(" ")" | "(" expressions ")" | "(" expression comprehension ")"
Expr* ExpressionParser::parseParenthesized() {
  Nested nested(*this);
  Loc begin = next().loc;
  if (accept(Tok::RightParen)) return node<SequenceExpr>(from(begin));
  Expr* inner = parseExpressions();
  if (is(Tok::KFor) || is(Tok::KAsync)) inner = parseComprehension(inner, begin);
  expect(Tok::RightParen, "`)` or `,`");
  inner->loc = from(begin);
  return inner;
}

/// list = "[" [ expressions ] "]" | "[" expression comprehension "]"
Expr* ExpressionParser::parseList() {
  Nested nested(*this);
  Loc begin = next().loc;
  auto* list = node<SequenceExpr>(begin);
  list->isList = true;
  while (!is(Tok::RightBracket)) {
    Expr* item = parseStarOrExpression();
    if ((is(Tok::KFor) || is(Tok::KAsync)) && list->items.empty()) {
      Expr* comprehension = parseComprehension(item, begin);
      expect(Tok::RightBracket, "`]`");
      return comprehension;
    }
    list->items.push_back(item);
    raise(list, item, 1);
    if (!accept(Tok::Comma)) break;
  }
  expect(Tok::RightBracket, "`]` or `,`");
  list->loc = from(begin);
  return list;
}

/// braces = "{" "}" | "{" pair { "," pair } [ "," ] "}" | "{" pair comprehension "}" | set, which is a list here
/// pair = expression ":" expression | "**" expression
Expr* ExpressionParser::parseBraces() {
  Nested nested(*this);
  Loc begin = next().loc;
  auto* dict = node<DictExpr>(begin);
  SequenceExpr* set = nullptr;
  while (!is(Tok::RightBrace)) {
    const bool isPart = !set && accept(Tok::StarStar);
    Expr* key = isPart ? nullptr : parseStarOrExpression();
    Expr* value = nullptr;
    if (isPart || (!set && is(Tok::Colon))) {
      if (!isPart) next();
      value = parseExpression();
    } else if (!set) {
      if (!dict->items.empty()) unexpected("`:`");
      set = node<SequenceExpr>(begin);
      set->isList = true;
    }
    if ((is(Tok::KFor) || is(Tok::KAsync)) && key && (set ? set->items.empty() : dict->items.empty())) {
      ComprehensionExpr* comprehension = parseComprehension(set ? key : value, begin);
      if (!set) comprehension->key = key, raise(comprehension, key, 1);
      expect(Tok::RightBrace, "`}`");
      return comprehension;
    }
    if (set)
      set->items.push_back(key), raise(set, key, 1);
    else
      dict->items.emplace_back(key, value), over(dict, {key, value});
    if (!accept(Tok::Comma)) break;
  }
  expect(Tok::RightBrace, "`}` or `,`");
  if (set) set->loc = from(begin);
  dict->loc = from(begin);
  return set ? static_cast<Expr*>(set) : dict;
}

/// comprehension = { [ "async" ] "for" targets "in" or_test { "if" or_test } }
ComprehensionExpr* ExpressionParser::parseComprehension(Expr* element, Loc begin) {
  auto* expr = node<ComprehensionExpr>(begin);
  expr->element = element;
  raise(expr, element, 1);
  while (is(Tok::KFor) || is(Tok::KAsync)) {
    accept(Tok::KAsync); // async has no effect
    expect(Tok::KFor, "`for`");
    ComprehensionClause clause;
    clause.target = parseTargets();
    expect(Tok::KIn, "`in`");
    clause.iterable = parseBoolOp(/*isAnd=*/false);
    raise(expr, clause.iterable, 1);
    while (accept(Tok::KIf)) {
      clause.conditions.push_back(is(Tok::KLambda) ? parseExpression() : parseBoolOp(/*isAnd=*/false));
      raise(expr, clause.conditions.back(), 1);
    }
    expr->clauses.push_back(std::move(clause));
    // Each clause is a loop inside the one before, and a walk visits them recursively.
    if (expr->clauses.size() > kMaxBlocks) diagnostics.fail(expr->loc, diag::nestedTooDeeply, Count(kMaxBlocks));
  }
  expr->loc = from(begin);
  return expr;
}

/// targets = target { "," target } [ "," ];  target = [ "*" ] postfix
Expr* ExpressionParser::parseTargets() {
  Loc begin = peek().loc;
  Expr* first = parseTarget();
  if (!is(Tok::Comma)) return first;
  auto* tuple = node<SequenceExpr>(begin);
  tuple->items.push_back(first);
  while (accept(Tok::Comma) && !is(Tok::KIn)) tuple->items.push_back(parseTarget());
  tuple->loc = from(begin);
  for (Expr* item : tuple->items) raise(tuple, item, 1);
  return tuple;
}

} // namespace attnc::dsl
