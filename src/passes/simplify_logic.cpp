// Rules of booleans, bits, comparisons, selects and casts; simplifier.h says what a rule may do. x, y, z are values, c
// and d constants, t and f the branches of a select.
#include "passes/simplifier.h"

#include <limits>

namespace attnc::passes {

// clang-format off

/// Rules of and, written for and; or is its dual, with false and true swapped.
Simplifier::Rewritten Simplifier::conjunction(const Node& n, Value x, Value y) {
  Op dual = n.op == Op::And ? Op::Or : Op::And;
  Value ones = allOnes(n.type), zero = out.constant(n.type, 0);
  Value neutral = n.op == Op::And ? ones : zero, absorbing = n.op == Op::And ? zero : ones;
  if (x == y) return x;                                                             // x & x = x
  if (y == neutral) return x;                                                       // x & true = x
  if (y == absorbing) return absorbing;                                             // x & false = false
  if (make(Op::Not, n, {x}) == y || make(Op::Not, n, {y}) == x) return absorbing;   // x & ~x = false
  if (is(y, n.op) && (arg(y, 0) == x || arg(y, 1) == x)) return y;                  // x & (x & y) = x & y
  if (is(x, n.op) && (arg(x, 0) == y || arg(x, 1) == y)) return x;                  // (x & y) & y = x & y
  if (is(y, dual) && (arg(y, 0) == x || arg(y, 1) == x)) return x;                  // x & (x | y) = x
  if (is(x, dual) && (arg(x, 0) == y || arg(x, 1) == y)) return y;                  // (x | y) & y = y
  if (isConst(y) && is(x, n.op) && isConst(arg(x, 1)))                              // (x & c) & d = x & (c & d)
    return make(n.op, n, {arg(x, 0), make(n.op, n, {arg(x, 1), y})});
  return std::nullopt;
}

Simplifier::Rewritten Simplifier::exclusive(const Node& n, Value x, Value y) {
  if (x == y) return out.constant(n.type, 0);                                       // x ^ x = 0
  if (isNumber(y, 0)) return x;                                                     // x ^ 0 = x
  if (y == allOnes(n.type)) return make(Op::Not, n, {x});                           // x ^ ~0 = ~x
  if (is(x, Op::Not) && is(y, Op::Not)) return make(Op::Xor, n, {arg(x, 0), arg(y, 0)});  // ~x ^ ~y = x ^ y
  return std::nullopt;
}

Simplifier::Rewritten Simplifier::complement(const Node& n, Value x) {
  if (is(x, Op::Not)) return arg(x, 0);                                             // ~~x = x
  if (is(x, Op::Eq)) return make(Op::Ne, n, {arg(x, 0), arg(x, 1)});                // not x == y: x != y
  if (is(x, Op::Ne)) return make(Op::Eq, n, {arg(x, 0), arg(x, 1)});                // not x != y: x == y
  bool isOrdered = (is(x, Op::Lt) || is(x, Op::Le)) && typeOf(arg(x, 0)) != Type::F32;  // NaN has no order
  if (isOrdered && is(x, Op::Lt)) return make(Op::Le, n, {arg(x, 1), arg(x, 0)});   // not x < y: y <= x
  if (isOrdered) return make(Op::Lt, n, {arg(x, 1), arg(x, 0)});                    // not x <= y: y < x
  return std::nullopt;
}

// ---- Comparisons ----

Simplifier::Rewritten Simplifier::compare(const Node& n, Value x, Value y) {
  Type type = typeOf(x);
  if (x == y && n.op == Op::Lt) return out.constBool(false);                        // x < x: false
  if (x == y && type != Type::F32) return out.constBool(n.op != Op::Ne);            // x == x, x <= x: true
  if (n.op == Op::Eq || n.op == Op::Ne)
    if (Rewritten result = equal(n, x, y)) return result;
  if (!isInt(type)) return std::nullopt;
  Rewritten smallX = narrowed(x), smallY = narrowed(y);
  if (smallX && smallY) return make(n.op, n, {*smallX, *smallY});                   // i64(x) < i64(y): x < y
  if (n.op != Op::Lt && n.op != Op::Le) return std::nullopt;
  constexpr auto kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();
  bool isWide = type == Type::I64;
  int64_t least = isWide ? kMin : INT32_MIN, most = isWide ? kMax : INT32_MAX;
  if (n.op == Op::Le) return lessOrEqual(n, x, y);
  if (isConst(y) && out.integer(y) != least)                                        // x < c: x <= c - 1
    return make(Op::Le, n, {x, number(type, out.integer(y) - 1)});
  if (isConst(x) && out.integer(x) != most)                                         // c < x: c + 1 <= x
    return make(Op::Le, n, {number(type, out.integer(x) + 1), y});
  if (is(x, Op::Neg) && is(y, Op::Neg) && isExact(x) && isExact(y))                 // -x < -y: y < x, exact
    return make(Op::Lt, n, {arg(y, 0), arg(x, 0)});
  return std::nullopt;
}

/// Rules of eq and ne.
Simplifier::Rewritten Simplifier::equal(const Node& n, Value x, Value y) {
  Type type = typeOf(x);
  bool isEq = n.op == Op::Eq;
  if (type == Type::Bool && isConst(y))                                             // x == true: x
    return isNumber(y, isEq) ? x : make(Op::Not, n, {x});
  if (!isInt(type)) return std::nullopt;
  if (is(x, Op::Sub) && isNumber(y, 0)) return make(n.op, n, {arg(x, 0), arg(x, 1)});  // x - y == 0: x == y
  if (is(x, Op::Neg) && is(y, Op::Neg)) return make(n.op, n, {arg(x, 0), arg(y, 0)});  // -x == -y: x == y
  if (!isConst(y)) return std::nullopt;
  Node sum{Op::Sub, type, 0, {}, n.line};
  if (is(x, Op::Add) && isConst(arg(x, 1)))                                         // x + c == d: x == d - c
    return make(n.op, n, {arg(x, 0), make(Op::Sub, sum, {y, arg(x, 1)})});
  if (is(x, Op::Neg)) return make(n.op, n, {arg(x, 0), make(Op::Neg, sum, {y})});   // -x == c: x == -c
  if (is(x, Op::Cast) && typeOf(arg(x, 0)) == Type::Bool) {
    Value b = arg(x, 0);
    if (isNumber(y, isEq)) return b;                                                // i32(b) == 1: b
    if (isNumber(y, !isEq)) return make(Op::Not, n, {b});                           // i32(b) == 0: not b
  }
  return std::nullopt;
}

/// Rules of integers: constants move to the constant's side if nothing wraps around.
Simplifier::Rewritten Simplifier::lessOrEqual(const Node& n, Value x, Value y) {
  Node sum{Op::Sub, typeOf(x), 0, {}, n.line};
  auto movable = [&](Value v, Value c) { // v is z + d, and c - d does not wrap around
    if (!isConst(c) || !is(v, Op::Add) || !isConst(arg(v, 1)) || !isExact(v)) return false;
    Node moved{Op::Sub, typeOf(v), 0, {c, arg(v, 1)}, 0};
    return cannotWrap(moved, {Range::ofConst(out, c), Range::ofConst(out, arg(v, 1))});
  };
  // x + c <= d: x <= d - c, exact
  if (movable(x, y)) return make(Op::Le, n, {arg(x, 0), make(Op::Sub, sum, {y, arg(x, 1)})});
  // d <= x + c: d - c <= x, exact
  if (movable(y, x)) return make(Op::Le, n, {make(Op::Sub, sum, {x, arg(y, 1)}), arg(y, 0)});
  if (is(x, Op::Sub) && isExact(x)) {
    if (isNumber(y, 0)) return make(Op::Le, n, {arg(x, 0), arg(x, 1)});             // x - y <= 0: x <= y, exact
    if (isNumber(y, -1)) return make(Op::Lt, n, {arg(x, 0), arg(x, 1)});            // x - y <= -1: x < y, exact
  }
  if (is(y, Op::Sub) && isExact(y)) {
    if (isNumber(x, 0)) return make(Op::Le, n, {arg(y, 1), arg(y, 0)});             // 0 <= x - y: y <= x, exact
    if (isNumber(x, 1)) return make(Op::Lt, n, {arg(y, 1), arg(y, 0)});             // 1 <= x - y: y < x, exact
  }
  if (is(x, Op::Neg) && is(y, Op::Neg) && isExact(x) && isExact(y))                 // -x <= -y: y <= x, exact
    return make(Op::Le, n, {arg(y, 0), arg(x, 0)});
  return std::nullopt;
}

// ---- Selects ----

Simplifier::Rewritten Simplifier::select(const Node& n) {
  Value x = n.operands[0], t = n.operands[1], f = n.operands[2];
  if (t == f) return t;                                                             // x ? t : t = t
  if (is(x, Op::Not)) return make(Op::Select, n, {arg(x, 0), f, t});                // !x ? t : f = x ? f : t
  // x ? (x ? t : z) : f = x ? t : f
  if (is(t, Op::Select) && arg(t, 0) == x) return make(Op::Select, n, {x, arg(t, 1), f});
  // x ? t : (x ? z : f) = x ? t : f
  if (is(f, Op::Select) && arg(f, 0) == x) return make(Op::Select, n, {x, t, arg(f, 2)});
  if (n.type == Type::Bool) {
    if (isNumber(f, 0)) return make(Op::And, n, {x, t});                            // x ? t : false = x & t
    if (isNumber(t, 1)) return make(Op::Or, n, {x, f});                             // x ? true : f = x | f
    if (isNumber(t, 0)) return make(Op::And, n, {make(Op::Not, n, {x}), f});        // x ? false : f = !x & f
    if (isNumber(f, 1)) return make(Op::Or, n, {make(Op::Not, n, {x}), t});         // x ? t : true = !x | t
    return std::nullopt;
  }
  if (!isInt(n.type)) return std::nullopt;
  if (isNumber(t, 1) && isNumber(f, 0)) return make(Op::Cast, n, {x});              // x ? 1 : 0 = int(x)
  bool isOrder = (is(x, Op::Le) || is(x, Op::Lt)) && typeOf(arg(x, 0)) == n.type;
  return isOrder ? selectExtreme(n, arg(x, 0), arg(x, 1)) : std::nullopt;
}

/// Rules of an integer select whose condition is x <= y or x < y.
Simplifier::Rewritten Simplifier::selectExtreme(const Node& n, Value x, Value y) {
  Value t = n.operands[1], f = n.operands[2];
  if (t == x && f == y) return make(Op::Min, n, {x, y});                            // x <= y ? x : y = min(x, y)
  if (t == y && f == x) return make(Op::Max, n, {x, y});                            // x <= y ? y : x = max(x, y)
  if (!is(n.operands[0], Op::Le)) return std::nullopt;
  // Comparisons with a constant were turned into <=, so the branch's constant may differ from it by one.
  auto follows = [&](Value c, Value d) {
    return isConst(c) && isConst(d) && out.integer(c) != std::numeric_limits<int64_t>::max() &&
           out.integer(c) + 1 == out.integer(d);
  };
  if (t == x && follows(y, f)) return make(Op::Min, n, {x, f});                    // x <= c ? x : c + 1 = min(x, c + 1)
  if (f == x && follows(y, t)) return make(Op::Max, n, {x, t});                    // x <= c ? c + 1 : x = max(x, c + 1)
  if (t == y && follows(f, x)) return make(Op::Max, n, {y, f});                    // c <= y ? y : c - 1 = max(y, c - 1)
  if (f == y && follows(t, x)) return make(Op::Min, n, {y, t});                    // c <= y ? c - 1 : y = min(y, c - 1)
  return std::nullopt;
}

// ---- Casts ----

Simplifier::Rewritten Simplifier::cast(const Node& n, Value x) {
  if (n.type == Type::F32 || n.type == Type::Bool)
    if (Rewritten small = narrowed(x)) return make(Op::Cast, n, {*small});          // f32(i64(x)) = f32(x)
  if (is(x, Op::Cast))
    if (Rewritten result = castOfCast(n, x)) return result;
  bool keepsLowBits = is(x, Op::Add) || is(x, Op::Sub) || is(x, Op::Mul) || is(x, Op::And) || is(x, Op::Or) ||
                      is(x, Op::Xor);
  if (n.type == Type::I32 && typeOf(x) == Type::I64 && keepsLowBits) {
    Rewritten a = narrowed(arg(x, 0)), b = narrowed(arg(x, 1));
    if (a && b) return make(out[x].op, n, {*a, *b});                                // i32(i64(x) + i64(y)) = x + y
  }
  return std::nullopt;
}

Simplifier::Rewritten Simplifier::castOfCast(const Node& n, Value x) {
  Value y = arg(x, 0);
  Type from = typeOf(y), through = typeOf(x), to = n.type;
  constexpr int64_t kExact = int64_t(1) << 24;
  if (from == Type::Bool) return from == to ? y : make(Op::Cast, n, {y});           // i64(i32(b)) = i64(b)
  if (from == Type::I32 && through == Type::I64)                                    // f32(i64(x)) = f32(x)
    return from == to ? y : make(Op::Cast, n, {y});
  if (from == to && through == Type::I32 && intervals.range(y).within(INT32_MIN, INT32_MAX))  // i64(i32(x)) = x, x fits
    return y;
  if (isInt(from) && from == to && through == Type::F32 && intervals.range(y).within(-kExact, kExact))
    return y;                                                                       // i32(f32(x)) = x, |x| <= 2^24
  return std::nullopt;
}

// clang-format on

} // namespace attnc::passes
