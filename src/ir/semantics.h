// What one operation computes: the single definition that the interpreter and constant folding share.
//
// Integers wrap at their width; f32 is computed in double (Precision::Double) or rounded to single after every
// operation by the caller. tanh_approx is tanh: the approximation belongs to the kernels, not to the meaning.
#pragma once

#include "ir/element.h"
#include "ir/ir.h"

#include <cmath>
#include <limits>

namespace attnc::ir::semantics {

template <class T> T floorDiv(T a, T b) {
  if (b == 0) return 0;
  if (b == -1) return T(0) - a; // the one quotient that does not fit, and a trap on x86
  T quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

template <class T> T floorMod(T a, T b) {
  if (b == 0 || b == -1) return 0;
  T remainder = a % b;
  return (remainder != 0 && (remainder < 0) != (b < 0)) ? remainder + b : remainder;
}

/// Python's float %: the sign of the divisor.
inline double floorMod(double a, double b) {
  double remainder = std::fmod(a, b);
  return (remainder != 0 && (remainder < 0) != (b < 0)) ? remainder + b : remainder;
}

/// Python's float //, as torch computes it; a zero divisor gives a / b.
inline double floorDiv(double a, double b) {
  if (b == 0) return a / b;
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

inline double minOf(double a, double b) { return (a < b || std::isnan(a)) ? a : b; }
inline double maxOf(double a, double b) { return (a > b || std::isnan(a)) ? a : b; }

/// Truncates and saturates; NaN gives 0.
template <class T> T saturate(double value) {
  if (std::isnan(value)) return 0;
  // -2^31 and -2^63 are exact in double, and so are their negatives, which are the first values that do not fit.
  constexpr double kLow = double(std::numeric_limits<T>::min());
  if (value <= kLow) return std::numeric_limits<T>::min();
  if (value >= -kLow) return std::numeric_limits<T>::max();
  return T(value);
}

[[gnu::always_inline]] inline Slot integer(int64_t value) { return {.integer = value}; }
[[gnu::always_inline]] inline Slot real(double value) { return {.real = value}; }

/// Operations whose operands are integers of type T (int32_t, int64_t, or bool's int64_t 0/1).
template <class T> [[gnu::always_inline]] inline Slot ofIntegers(Op op, T a, T b) {
  using Unsigned = std::make_unsigned_t<T>;
  constexpr int kMask = sizeof(T) * 8 - 1;
  switch (op) {
  case Op::Neg: return integer(T(Unsigned(0) - Unsigned(a)));
  case Op::Abs: return integer(a < 0 ? T(Unsigned(0) - Unsigned(a)) : a);
  case Op::Add: return integer(T(Unsigned(a) + Unsigned(b)));
  case Op::Sub: return integer(T(Unsigned(a) - Unsigned(b)));
  case Op::Mul: return integer(T(Unsigned(a) * Unsigned(b)));
  case Op::Min: return integer(a < b ? a : b);
  case Op::Max: return integer(a > b ? a : b);
  case Op::FloorDiv: return integer(floorDiv(a, b));
  case Op::Mod: return integer(floorMod(a, b));
  case Op::And: return integer(a & b);
  case Op::Or: return integer(a | b);
  case Op::Xor: return integer(a ^ b);
  case Op::Not: return integer(~a);
  case Op::Shl: return integer(T(Unsigned(a) << (b & kMask)));
  case Op::Shr: return integer(a >> (b & kMask));
  case Op::Eq: return integer(a == b);
  case Op::Ne: return integer(a != b);
  case Op::Lt: return integer(a < b);
  case Op::Le: return integer(a <= b);
  default: return integer(0); // not an operation on integers; the verifier refuses it
  }
}

[[gnu::always_inline]] inline Slot ofReals(Op op, double a, double b) {
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
  case Op::Exp: return real(std::exp(a));
  case Op::Exp2: return real(std::exp2(a));
  case Op::Log: return real(std::log(a));
  case Op::Log2: return real(std::log2(a));
  case Op::Log1p: return real(std::log1p(a));
  case Op::Sqrt: return real(std::sqrt(a));
  case Op::Rsqrt: return real(1 / std::sqrt(a));
  case Op::Sin: return real(std::sin(a));
  case Op::Cos: return real(std::cos(a));
  case Op::Tan: return real(std::tan(a));
  case Op::Tanh:
  case Op::TanhApprox: return real(std::tanh(a));
  case Op::Sigmoid: return real(1 / (1 + std::exp(-a)));
  case Op::Erf: return real(std::erf(a));
  case Op::Floor: return real(std::floor(a));
  case Op::Ceil: return real(std::ceil(a));
  case Op::Trunc: return real(std::trunc(a));
  case Op::Round: return real(std::nearbyint(a)); // the default rounding mode: half to even
  case Op::Pow: return real(std::pow(a, b));
  default: return real(0); // not an operation on reals; the verifier refuses it
  }
}

[[gnu::always_inline]] inline Slot cast(Type from, Type to, Slot a) {
  switch (to) {
  case Type::Bool: return integer(from == Type::F32 ? a.real != 0 : a.integer != 0);
  case Type::I32: return integer(from == Type::F32 ? saturate<int32_t>(a.real) : int32_t(a.integer));
  case Type::I64: return integer(from == Type::F32 ? saturate<int64_t>(a.real) : a.integer);
  case Type::F32: return from == Type::F32 ? a : real(double(a.integer));
  }
  return a;
}

/// Applies any operation but the leaves, Select and Load. `from` is the type of the operands, `to` of the result.
[[gnu::always_inline]] inline Slot apply(Op op, Type from, Type to, Slot a, Slot b) {
  if (op == Op::Cast) return cast(from, to, a);
  switch (from) {
  case Type::Bool: return op == Op::Not ? integer(a.integer ^ 1) : ofIntegers<int64_t>(op, a.integer, b.integer);
  case Type::I32: return ofIntegers<int32_t>(op, int32_t(a.integer), int32_t(b.integer));
  case Type::I64: return ofIntegers<int64_t>(op, a.integer, b.integer);
  case Type::F32: return ofReals(op, a.real, b.real);
  }
  return a;
}

} // namespace attnc::ir::semantics
