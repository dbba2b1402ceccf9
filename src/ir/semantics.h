// What one operation computes: the single definition that the interpreter and constant folding share.
//
// Integers wrap at their width. f32 operations are those of IEEE single precision, each rounded once; a function such
// as exp is computed in double and then rounded, which gives the nearest f32 but for one case in some hundred million.
// tanh_approx is tanh: the approximation belongs to the kernels, not to the meaning. Real is float; tests compare with
// double.
#pragma once

#include "ir/element.h"
#include "ir/ir.h"

#include <cmath>
#include <concepts>
#include <limits>

namespace attnc::ir::semantics {

template <std::integral T> T floorDiv(T a, T b) {
  if (b == 0) return 0;
  if (b == -1) return T(0) - a; // the one quotient that does not fit, and a trap on x86
  T quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

template <std::integral T> T floorMod(T a, T b) {
  if (b == 0 || b == -1) return 0;
  T remainder = a % b;
  return (remainder != 0 && (remainder < 0) != (b < 0)) ? remainder + b : remainder;
}

/// Python's float %: the sign of the divisor.
template <std::floating_point Real> Real floorMod(Real a, Real b) {
  Real remainder = std::fmod(a, b);
  return (remainder != 0 && (remainder < 0) != (b < 0)) ? remainder + b : remainder;
}

/// Python's float //, as torch computes it; a zero divisor gives a / b.
template <std::floating_point Real> Real floorDiv(Real a, Real b) {
  if (b == 0) return a / b;
  Real remainder = std::fmod(a, b);
  Real quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(Real(0), a / b);
  Real floored = std::floor(quotient);
  return quotient - floored > Real(0.5) ? floored + 1 : floored;
}

template <class Real> Real minOf(Real a, Real b) { return (a < b || std::isnan(a)) ? a : b; }
template <class Real> Real maxOf(Real a, Real b) { return (a > b || std::isnan(a)) ? a : b; }

/// Truncates and saturates; NaN gives 0.
template <class T> T saturate(double value) {
  if (std::isnan(value)) return 0;
  // -2^31 and -2^63 are exact in double, and so are their negatives, which are the first values that do not fit.
  constexpr double kLow = double(std::numeric_limits<T>::min());
  if (value <= kLow) return std::numeric_limits<T>::min();
  if (value >= -kLow) return std::numeric_limits<T>::max();
  return T(value);
}

/// Operations whose operands are integers of type T (int32_t, int64_t, or bool's int64_t 0/1).
template <class T> [[gnu::always_inline]] inline int64_t ofIntegers(Op op, T a, T b) {
  using Unsigned = std::make_unsigned_t<T>;
  constexpr int kMask = sizeof(T) * 8 - 1;
  switch (op) {
  case Op::Neg: return T(Unsigned(0) - Unsigned(a));
  case Op::Abs: return a < 0 ? T(Unsigned(0) - Unsigned(a)) : a;
  case Op::Add: return T(Unsigned(a) + Unsigned(b));
  case Op::Sub: return T(Unsigned(a) - Unsigned(b));
  case Op::Mul: return T(Unsigned(a) * Unsigned(b));
  case Op::Min: return a < b ? a : b;
  case Op::Max: return a > b ? a : b;
  case Op::FloorDiv: return floorDiv(a, b);
  case Op::Mod: return floorMod(a, b);
  case Op::And: return a & b;
  case Op::Or: return a | b;
  case Op::Xor: return a ^ b;
  case Op::Not: return ~a;
  case Op::Shl: return T(Unsigned(a) << (b & kMask));
  case Op::Shr: return a >> (b & kMask);
  case Op::Eq: return a == b;
  case Op::Ne: return a != b;
  case Op::Lt: return a < b;
  case Op::Le: return a <= b;
  default: return 0; // not an operation on integers; the verifier refuses it
  }
}

template <class Real> [[gnu::always_inline]] inline SlotOf<Real> ofReals(Op op, Real a, Real b) {
  auto real = [](auto value) { return SlotOf<Real>{.real = Real(value)}; };
  auto integer = [](bool value) { return SlotOf<Real>{.integer = value}; };
  const double x = double(a); // what functions are computed of
  switch (op) {
  case Op::Neg: return real(-a);
  case Op::Abs: return real(std::fabs(a));
  case Op::Add: return real(a + b);
  case Op::Sub: return real(a - b);
  case Op::Mul: return real(a * b);
  case Op::Div: return real(a / b);
  case Op::Min: return real(minOf(a, b));
  case Op::Max: return real(maxOf(a, b));
  case Op::FloorDiv: return real(floorDiv(a, b));
  case Op::Mod: return real(floorMod(a, b));
  case Op::Eq: return integer(a == b);
  case Op::Ne: return integer(a != b);
  case Op::Lt: return integer(a < b);
  case Op::Le: return integer(a <= b);
  case Op::IsNan: return integer(std::isnan(a));
  case Op::Exp: return real(std::exp(x));
  case Op::Exp2: return real(std::exp2(x));
  case Op::Log: return real(std::log(x));
  case Op::Log2: return real(std::log2(x));
  case Op::Log1p: return real(std::log1p(x));
  case Op::Sqrt: return real(std::sqrt(a));
  case Op::Rsqrt: return real(1 / std::sqrt(x));
  case Op::Sin: return real(std::sin(x));
  case Op::Cos: return real(std::cos(x));
  case Op::Tan: return real(std::tan(x));
  case Op::Tanh:
  case Op::TanhApprox: return real(std::tanh(x));
  case Op::Sigmoid: return real(1 / (1 + std::exp(-x)));
  case Op::Erf: return real(std::erf(x));
  case Op::Floor: return real(std::floor(a));
  case Op::Ceil: return real(std::ceil(a));
  case Op::Trunc: return real(std::trunc(a));
  case Op::Round: return real(std::nearbyint(a)); // the default rounding mode: half to even
  case Op::Pow: return real(std::pow(x, double(b)));
  case Op::StopGradient: return real(a);
  default: return real(0); // not an operation on reals; the verifier refuses it
  }
}

template <class Real> [[gnu::always_inline]] inline SlotOf<Real> cast(Type from, Type to, SlotOf<Real> a) {
  const bool isReal = from == Type::F32;
  switch (to) {
  case Type::Bool: return {.integer = isReal ? a.real != 0 : a.integer != 0};
  case Type::I32: return {.integer = isReal ? saturate<int32_t>(a.real) : int32_t(a.integer)};
  case Type::I64: return {.integer = isReal ? saturate<int64_t>(a.real) : a.integer};
  case Type::F32: return isReal ? a : SlotOf<Real>{.real = Real(a.integer)};
  }
  return a;
}

/// Applies any operation but the leaves, Select and Load. `from` is the type of the operands, `to` of the result.
template <class Real>
[[gnu::always_inline]] inline SlotOf<Real> apply(Op op, Type from, Type to, SlotOf<Real> a, SlotOf<Real> b) {
  if (op == Op::Cast) return cast(from, to, a);
  switch (from) {
  case Type::Bool: return {.integer = op == Op::Not ? a.integer ^ 1 : ofIntegers<int64_t>(op, a.integer, b.integer)};
  case Type::I32: return {.integer = ofIntegers<int32_t>(op, int32_t(a.integer), int32_t(b.integer))};
  case Type::I64: return {.integer = ofIntegers<int64_t>(op, a.integer, b.integer)};
  case Type::F32: return ofReals(op, a.real, b.real);
  }
  return a;
}

} // namespace attnc::ir::semantics
