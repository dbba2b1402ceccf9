// The result of one operation: the single definition that the interpreter and constant folding share.
//
// Integers wrap at their width. f32 operations are IEEE single precision, each rounded once. A function such as exp is
// computed in double and then rounded, which gives the nearest f32 except for one case in some hundred million. The
// column `value` of ops.def defines each operation with the functions in this file. Real is float; tests compare with
// double, and the front end computes known numbers in it.
#pragma once

#include "ir/ir.h"
#include "support/element.h"

#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>

namespace attnc::ir::semantics {

// Arithmetic on the unsigned type wraps, whatever the compiler's flags.
template <class T> using Unsigned = std::make_unsigned_t<T>;
template <std::integral T> T negative(T a) { return T(Unsigned<T>(0) - Unsigned<T>(a)); }

template <std::integral T> T floorDiv(T a, T b) {
  if (b == 0) return 0;
  if (b == -1) return negative(a); // -min does not fit, and traps on x86
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

template <std::integral T> T minOf(T a, T b) { return a < b ? a : b; }
template <std::integral T> T maxOf(T a, T b) { return a > b ? a : b; }
/// As in PTX: NaN if an operand is NaN, and -0 is below 0.
template <std::floating_point Real> Real minOf(Real a, Real b) {
  return (a < b || std::isnan(a) || (a == b && std::signbit(a))) ? a : b;
}
template <std::floating_point Real> Real maxOf(Real a, Real b) {
  return (a > b || std::isnan(a) || (a == b && !std::signbit(a))) ? a : b;
}

template <std::integral T> T absolute(T a) { return a < 0 ? negative(a) : a; }
template <std::integral T> T sum(T a, T b) { return T(Unsigned<T>(a) + Unsigned<T>(b)); }
template <std::integral T> T difference(T a, T b) { return T(Unsigned<T>(a) - Unsigned<T>(b)); }
template <std::integral T> T product(T a, T b) { return T(Unsigned<T>(a) * Unsigned<T>(b)); }
template <std::floating_point Real> Real negative(Real a) { return -a; }
template <std::floating_point Real> Real absolute(Real a) { return std::fabs(a); }
template <std::floating_point Real> Real sum(Real a, Real b) { return a + b; }
template <std::floating_point Real> Real difference(Real a, Real b) { return a - b; }
template <std::floating_point Real> Real product(Real a, Real b) { return a * b; }

inline bool complement(bool a) { return !a; }
template <std::integral T> T complement(T a) { return ~a; }
template <std::integral T> constexpr T kCountMask = T(sizeof(T) * 8 - 1);
template <std::integral T> T shiftLeft(T a, T count) { return T(Unsigned<T>(a) << (count & kCountMask<T>)); }
template <std::integral T> T shiftRight(T a, T count) { return a >> (count & kCountMask<T>); }

/// Functions of f32 are computed from the wide operand.
template <std::floating_point Real> double wide(Real a) { return double(a); }
inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Truncates and saturates; NaN gives 0.
template <class T> T saturate(double value) {
  if (std::isnan(value)) return 0;
  // -2^31 and -2^63 are exact in double; so are their negatives, the first values that do not fit.
  constexpr double kLow = double(std::numeric_limits<T>::min());
  if (value <= kLow) return std::numeric_limits<T>::min();
  if (value >= -kLow) return std::numeric_limits<T>::max();
  return T(value);
}

/// Whether ops.def defines the operations of this rule for operands that all have this type.
constexpr bool isSpelled(TypeRule rule, Type type) {
  const bool isElsewhere = rule == TypeRule::Leaf || rule == TypeRule::Select || rule == TypeRule::Cast ||
                           rule == TypeRule::Load || rule == TypeRule::Sum || rule == TypeRule::Grid ||
                           rule == TypeRule::Random;
  return !isElsewhere && admits(rule, type);
}

template <class Real, class T> NumberOf<Real> slotOf(T value) {
  if constexpr (std::is_floating_point_v<T>)
    return {.real = Real(value)};
  else
    return {.integer = value};
}

/// Applies the operation to operands of type T. Returns 0 for combinations that the verifier refuses.
template <class Real, Type type, class T> [[gnu::always_inline]] inline NumberOf<Real> spelled(Op op, T a, T b) {
  [[maybe_unused]] constexpr int Elsewhere = 0;
  switch (op) {
#define OP(Name, text, arity, rule, cuda, value, derivative, commutes, cost)                                           \
  case Op::Name:                                                                                                       \
    if constexpr (isSpelled(TypeRule::rule, type))                                                                     \
      return slotOf<Real>(value);                                                                                      \
    else                                                                                                               \
      break;
#include "ir/ops.def"
  }
  return {.integer = 0};
}

template <class Real> [[gnu::always_inline]] inline NumberOf<Real> cast(Type from, Type to, NumberOf<Real> a) {
  const bool isReal = from == Type::F32;
  switch (to) {
  case Type::Bool: return {.integer = isReal ? a.real != 0 : a.integer != 0};
  case Type::I32: return {.integer = isReal ? saturate<int32_t>(a.real) : int32_t(a.integer)};
  case Type::I64: return {.integer = isReal ? saturate<int64_t>(a.real) : a.integer};
  case Type::F32: return isReal ? a : NumberOf<Real>{.real = Real(a.integer)};
  }
  return a;
}

/// Applies any operation except leaves, Select, Load, Sum, Coord, InGrid and Random. `from`: the operands' type; `to`:
/// the result's.
template <class Real>
[[gnu::always_inline]] inline NumberOf<Real> apply(Op op, Type from, Type to, NumberOf<Real> a, NumberOf<Real> b) {
  if (op == Op::Cast) return cast(from, to, a);
  switch (from) {
  case Type::Bool: return spelled<Real, Type::Bool>(op, a.integer != 0, b.integer != 0);
  case Type::I32: return spelled<Real, Type::I32>(op, int32_t(a.integer), int32_t(b.integer));
  case Type::I64: return spelled<Real, Type::I64>(op, a.integer, b.integer);
  case Type::F32: return spelled<Real, Type::F32>(op, a.real, b.real);
  }
  return a;
}

} // namespace attnc::ir::semantics
