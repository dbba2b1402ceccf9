// Rules of numbers; simplifier.h says what a rule may do. x, y, z are values, c and d constants.
#include "passes/simplifier.h"

#include <cmath>

namespace attnc::passes {

// clang-format off

// ---- Integers ----

Simplifier::Rewritten Simplifier::addIntegers(const Node& n, Value x, Value y) {
  if (isNumber(y, 0)) return x;                                                     // x + 0 = x
  if (is(y, Op::Neg)) return make(Op::Sub, n, {x, arg(y, 0)});                      // x + -y = x - y
  if (is(x, Op::Neg)) return make(Op::Sub, n, {y, arg(x, 0)});                      // -x + y = y - x
  if (is(x, Op::Sub) && arg(x, 1) == y) return arg(x, 0);                           // (x - y) + y = x
  if (is(y, Op::Sub) && arg(y, 1) == x) return arg(y, 0);                           // x + (y - x) = y
  if (!isConst(y)) return std::nullopt;
  if (is(x, Op::Add) && isConst(arg(x, 1)))                                         // (x + c) + d = x + (c + d)
    return make(Op::Add, n, {arg(x, 0), make(Op::Add, n, {arg(x, 1), y})});
  if (is(x, Op::Sub) && isConst(arg(x, 0)))                                         // (c - x) + d = (c + d) - x
    return make(Op::Sub, n, {make(Op::Add, n, {arg(x, 0), y}), arg(x, 1)});
  return std::nullopt;
}

Simplifier::Rewritten Simplifier::subIntegers(const Node& n, Value x, Value y) {
  if (x == y) return number(n.type, 0);                                             // x - x = 0
  if (isNumber(x, 0)) return make(Op::Neg, n, {y});                                 // 0 - y = -y
  if (isConst(y)) return make(Op::Add, n, {x, make(Op::Neg, n, {y})});              // x - c = x + -c
  if (is(y, Op::Neg)) return make(Op::Add, n, {x, arg(y, 0)});                      // x - -y = x + y
  if (is(x, Op::Add) && arg(x, 1) == y) return arg(x, 0);                           // (x + y) - y = x
  if (is(x, Op::Add) && arg(x, 0) == y) return arg(x, 1);                           // (x + y) - x = y
  if (is(y, Op::Sub) && arg(y, 0) == x) return arg(y, 1);                           // x - (x - y) = y
  if (isConst(x) && is(y, Op::Add) && isConst(arg(y, 1)))                           // c - (x + d) = (c - d) - x
    return make(Op::Sub, n, {make(Op::Sub, n, {x, arg(y, 1)}), arg(y, 0)});
  if (isConst(x) && is(y, Op::Sub) && isConst(arg(y, 0)))                           // c - (d - x) = x + (c - d)
    return make(Op::Add, n, {arg(y, 1), make(Op::Sub, n, {x, arg(y, 0)})});
  return std::nullopt;
}

Simplifier::Rewritten Simplifier::mulIntegers(const Node& n, Value x, Value y) {
  if (isNumber(y, 0)) return y;                                                     // x * 0 = 0
  if (isNumber(y, 1)) return x;                                                     // x * 1 = x
  if (isNumber(y, -1)) return make(Op::Neg, n, {x});                                // x * -1 = -x
  if (is(x, Op::Neg) && is(y, Op::Neg)) return make(Op::Mul, n, {arg(x, 0), arg(y, 0)});  // -x * -y = x * y
  if (is(x, Op::Neg) && isConst(y)) return make(Op::Mul, n, {arg(x, 0), make(Op::Neg, n, {y})});  // -x * c = x * -c
  if (isConst(y) && is(x, Op::Mul) && isConst(arg(x, 1)))                           // (x * c) * d = x * (c * d)
    return make(Op::Mul, n, {arg(x, 0), make(Op::Mul, n, {arg(x, 1), y})});
  return std::nullopt;
}

/// Rules of integer floor_div, mod and shifts, including those that ranges decide (x % c = x for 0 <= x < c).
Simplifier::Rewritten Simplifier::divide(const Node& n, Value x, Value y) {
  if (n.type == Type::F32 || !isConst(y)) return std::nullopt;
  int64_t c = out.integer(y);
  bool isShift = n.op == Op::Shl || n.op == Op::Shr;
  if (isShift && (c & (n.type == Type::I32 ? 31 : 63)) == 0) return x;              // x << 0 = x >> 0 = x
  if (n.op == Op::FloorDiv && c == 1) return x;                                     // x // 1 = x
  if (n.op == Op::FloorDiv && c == -1) return make(Op::Neg, n, {x});                // x // -1 = -x
  if (n.op == Op::Mod && c > 0 && intervals.range(x).within(0, c - 1)) return x;    // x % c = x, 0 <= x < c
  if (isShift || c <= 0 || !is(x, Op::Add) || !isConst(arg(x, 1)) || !intervals.isExact(x)) return std::nullopt;
  const int64_t whole = out.integer(arg(x, 1)) / c;
  if (whole < 1 || whole * c != out.integer(arg(x, 1))) return std::nullopt;        // of x - k * c, find-grids asks k
  if (n.op == Op::Mod) return make(Op::Mod, n, {arg(x, 0), y});                     // (x + k * c) % c = x % c
  return make(Op::Add, n, {make(Op::FloorDiv, n, {arg(x, 0), y}), number(n.type, whole)}); // (x + k * c) // c = x // c + k
  return std::nullopt;
}

Simplifier::Rewritten Simplifier::negate(const Node& n, Value x) {
  if (is(x, Op::Neg)) return arg(x, 0);                                             // --x = x
  if (is(x, Op::Mul) && isConst(arg(x, 1)))                                         // -(x * c) = x * -c
    return make(Op::Mul, n, {arg(x, 0), make(Op::Neg, n, {arg(x, 1)})});
  if (n.type == Type::F32) return std::nullopt;
  if (is(x, Op::Sub)) return make(Op::Sub, n, {arg(x, 1), arg(x, 0)});              // -(x - y) = y - x
  if (is(x, Op::Add) && isConst(arg(x, 1)))                                         // -(x + c) = -c - x
    return make(Op::Sub, n, {make(Op::Neg, n, {arg(x, 1)}), arg(x, 0)});
  return std::nullopt;
}

Simplifier::Rewritten Simplifier::absolute(const Node& n, Value x) {
  if (is(x, Op::Abs)) return x;                                                     // ||x|| = |x|
  if (is(x, Op::Neg)) return make(Op::Abs, n, {arg(x, 0)});                         // |-x| = |x|
  if (n.type == Type::F32) return std::nullopt;
  if (intervals.range(x).lo >= 0) return x;                                         // |x| = x, x >= 0
  if (intervals.range(x).hi <= 0) return make(Op::Neg, n, {x});                     // |x| = -x, x <= 0
  return std::nullopt;
}

/// Rules of min, written for min; max reverses the order.
Simplifier::Rewritten Simplifier::minimum(const Node& n, Value x, Value y) {
  bool isMin = n.op == Op::Min;
  if (x == y) return x;                                                             // min(x, x) = x
  if (n.type == Type::F32) {
    float neutral = isMin ? INFINITY : -INFINITY;
    if (isReal(y, neutral)) return x;                                               // min(x, inf) = x
    if (isReal(x, neutral)) return y;                                               // min(inf, y) = y
    return std::nullopt;
  }
  Value xBelow = make(Op::Le, Type::Bool, n, {x, y});
  if (isNumber(xBelow, 1)) return isMin ? x : y;                                    // min(x, y) = x, x <= y
  if (isNumber(make(Op::Le, Type::Bool, n, {y, x}), 1)) return isMin ? y : x;       // min(x, y) = y, y <= x
  if (isConst(y) && is(x, n.op) && isConst(arg(x, 1)))                          // min(min(x, c), d) = min(x, min(c, d))
    return make(n.op, n, {arg(x, 0), make(n.op, n, {arg(x, 1), y})});
  if (is(x, n.op) && (arg(x, 0) == y || arg(x, 1) == y)) return x;                  // min(min(x, y), y) = min(x, y)
  if (is(y, n.op) && (arg(y, 0) == x || arg(y, 1) == x)) return y;                  // min(x, min(x, y)) = min(x, y)
  return std::nullopt;
}

// ---- f32: exact identities only ----

Simplifier::Rewritten Simplifier::addReals(const Node& n, Value x, Value y) {
  if (isReal(y, -0.0f)) return x;                                                   // x + -0 = x
  if (is(y, Op::Neg)) return make(Op::Sub, n, {x, arg(y, 0)});                      // x + -y = x - y
  if (is(x, Op::Neg)) return make(Op::Sub, n, {y, arg(x, 0)});                      // -x + y = y - x
  return std::nullopt;
}

Simplifier::Rewritten Simplifier::subReals(const Node& n, Value x, Value y) {
  if (isReal(y, 0.0f)) return x;                                                    // x - 0 = x
  if (isReal(x, -0.0f)) return make(Op::Neg, n, {y});                               // -0 - y = -y
  if (is(y, Op::Neg)) return make(Op::Add, n, {x, arg(y, 0)});                      // x - -y = x + y
  return std::nullopt;
}

Simplifier::Rewritten Simplifier::mulReals(const Node& n, Value x, Value y) {
  if (isReal(y, 1.0f)) return x;                                                    // x * 1 = x
  if (isReal(y, -1.0f)) return make(Op::Neg, n, {x});                               // x * -1 = -x
  if (is(x, Op::Neg) && is(y, Op::Neg)) return make(Op::Mul, n, {arg(x, 0), arg(y, 0)});  // -x * -y = x * y
  if (is(x, Op::Neg) && isConst(y)) return make(Op::Mul, n, {arg(x, 0), make(Op::Neg, n, {y})});  // -x * c = x * -c
  return std::nullopt;
}

Simplifier::Rewritten Simplifier::divReals(const Node& n, Value x, Value y) {
  if (isReal(y, 1.0f)) return x;                                                    // x / 1 = x
  if (is(x, Op::Neg) && is(y, Op::Neg)) return make(Op::Div, n, {arg(x, 0), arg(y, 0)});  // -x / -y = x / y
  if (!isConst(y)) return std::nullopt;
  float c = out.f32(y);
  int exponent = 0;
  bool isPower = std::isfinite(c) && std::fabs(std::frexp(c, &exponent)) == 0.5f;
  bool invertible = isPower && exponent > -125 && exponent < 126; // c and 1 / c are normal
  if (invertible) return make(Op::Mul, n, {x, out.constF32(1 / c)});                // x / 2^k = x * 2^-k
  return std::nullopt;
}

/// Rules of floor, ceil, trunc and round.
Simplifier::Rewritten Simplifier::roundReal(const Node&, Value x) {
  bool isWhole = is(x, Op::Floor) || is(x, Op::Ceil) || is(x, Op::Trunc) || is(x, Op::Round);
  if (isWhole) return x;                                                            // floor(ceil(x)) = ceil(x)
  if (is(x, Op::Cast)) return x;                                                    // floor(f32(i)) = f32(i)
  return std::nullopt;
}

// clang-format on

Simplifier::Rewritten Simplifier::sum(const Node& n, Value x) {
  const int64_t count = ir::Loop::of(n).count;
  if (n.type == Type::F32) return isReal(x, 0.0f) || isReal(x, -0.0f) ? Rewritten(out.constF32(0)) : std::nullopt;
  if (isConst(x)) return number(n.type, int64_t(uint64_t(out.integer(x)) * uint64_t(count))); // sum of c  =>  c * count
  return std::nullopt;
}

} // namespace attnc::passes
