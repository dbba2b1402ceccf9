// The vocabulary of the column `derivative` of ops.def: terms are values of the IR, a gradient is a product.
#include "passes/derivatives.h"

#include "passes/ir_names.h"

#include <llvm/ADT/STLExtras.h>

#include <array>
#include <numbers>
#include <utility>

namespace attnc::passes {
namespace {

constexpr double kLn2 = std::numbers::ln2;
constexpr double kTwoBySqrtPi = 2 * std::numbers::inv_sqrtpi;
constexpr std::nullopt_t Nothing = std::nullopt;

/// A value of the IR, or a number, which becomes a constant when combined with a value.
struct Term {
  Term(Products& in, Value value) : in(&in), value(value) {}
  Term(double number) : number(number) {}

  Value valueIn(Products& products) const { return in ? value : products.module.constF32(float(number)); }

  Products* in = nullptr;
  Value value = {};
  double number = 0;
};

Term apply(Op op, Type type, std::initializer_list<Term> operands) {
  Products* in = nullptr;
  for (const Term& operand : operands)
    if (operand.in) in = operand.in;
  llvm::SmallVector<Value, 3> values;
  for (const Term& operand : operands) values.push_back(operand.valueIn(*in));
  return {*in, in->make(op, type, values)};
}

Term operator-(Term x) { return apply(Op::Neg, Type::F32, {x}); }
Term operator+(Term x, Term y) { return apply(Op::Add, Type::F32, {x, y}); }
Term operator-(Term x, Term y) { return apply(Op::Sub, Type::F32, {x, y}); }
Term operator*(Term x, Term y) { return apply(Op::Mul, Type::F32, {x, y}); }
Term operator/(Term x, Term y) { return apply(Op::Div, Type::F32, {x, y}); }
Term operator<(Term x, Term y) { return apply(Op::Lt, Type::Bool, {x, y}); }
Term operator<=(Term x, Term y) { return apply(Op::Le, Type::Bool, {x, y}); }
Term operator==(Term x, Term y) { return apply(Op::Eq, Type::Bool, {x, y}); }
Term operator&(Term x, Term y) { return apply(Op::And, Type::Bool, {x, y}); }
Term floorDiv(Term x, Term y) { return apply(Op::FloorDiv, Type::F32, {x, y}); }
Term trunc(Term x) { return apply(Op::Trunc, Type::F32, {x}); }
Term pow(Term x, Term y) { return apply(Op::Pow, Type::F32, {x, y}); }
Term exp(Term x) { return apply(Op::Exp, Type::F32, {x}); }
Term log(Term x) { return apply(Op::Log, Type::F32, {x}); }
Term sin(Term x) { return apply(Op::Sin, Type::F32, {x}); }
Term cos(Term x) { return apply(Op::Cos, Type::F32, {x}); }
Term sinh(Term x) { return apply(Op::Sinh, Type::F32, {x}); }
Term cosh(Term x) { return apply(Op::Cosh, Type::F32, {x}); }
Term rsqrt(Term x) { return apply(Op::Rsqrt, Type::F32, {x}); }
Term hypot(Term x, Term y) { return apply(Op::Hypot, Type::F32, {x, y}); }
/// Returns -1 if x < 0, else 1.
Term sign(Term x) { return apply(Op::Select, Type::F32, {x < 0, -1, 1}); }

struct Gradient {
  Products& in;
  Product product;
};

Gradient operator*(Gradient g, Term by) {
  g.in.multiply(g.product, by.valueIn(g.in));
  return g;
}
Gradient operator/(Gradient g, Term by) {
  g.in.divide(g.product, by.valueIn(g.in));
  return g;
}
Gradient operator-(Gradient g) {
  g.product.factor = -g.product.factor;
  return g;
}
/// Returns the gradient if the condition holds, else 0, even where the gradient is not finite.
Gradient when(Term condition, Gradient g) {
  g.in.require(g.product, {condition.value, true});
  return g;
}
Gradient unless(Term condition, Gradient g) {
  g.in.require(g.product, {condition.value, false});
  return g;
}

std::optional<Product> productOf(Gradient g) { return std::move(g.product); }
std::optional<Product> productOf(std::nullopt_t) { return std::nullopt; }
template <class... Gradients> std::array<std::optional<Product>, sizeof...(Gradients)> list(Gradients... gradients) {
  return {productOf(std::move(gradients))...};
}
/// Returns one gradient per operand, or nullopt for all.
template <int arity, size_t count>
llvm::SmallVector<std::optional<Product>, 3> ofOperands(std::array<std::optional<Product>, count> gradients) {
  static_assert(count == 0 || count == size_t(arity));
  return {gradients.begin(), gradients.end()};
}

} // namespace

llvm::SmallVector<std::optional<Product>, 3> derivatives(Products& products, Value node, const Product& gradient) {
  const ir::Node of = products.module[node];
  products.line = of.line;
  const auto operand = [&](size_t i) { return Term(products, i < of.operands.size() ? of.operands[i] : node); };
  const Term a = operand(0), b = operand(1), y(products, node);
  const Gradient g{products, gradient};
  /// Splits the gradient in half between two equal operands. A constant takes none.
  const bool isBound = llvm::any_of(of.operands, [&](Value x) { return products.module[x].op == Op::Const; });
  const auto share = [&](Term areEqual) {
    return isBound ? Term(products, products.module.constF32(1)) : apply(Op::Select, Type::F32, {areEqual, 0.5, 1});
  };
  switch (of.op) {
#define None ()
#define OP(Name, text, arity, rule, cuda, value, derivative, commutes, cost)                                           \
  case Op::Name:                                                                                                       \
    return ofOperands<arity>(list derivative);
#include "ir/ops.def"
#undef None
  }
  return {};
}

} // namespace attnc::passes
