// Random masks: comparisons of positions, scalars and constants, joined by and, or, not, and choices by head.
//
//   attnc::test::RandomMask random(seed);   // the same seed gives the same module and data everywhere
//   auto bindings = ir::bind(random.module, random.captures, random.problem);
//
// Scalars have values from all of int32, mostly near the lengths.
#pragma once

#include "attnc/block_mask.h"
#include "ir/ir.h"

#include <random>
#include <string>
#include <vector>

namespace attnc::test {

class RandomMask {
public:
  ir::Module module;
  Captures captures; ///< in host memory, owned by this object
  ProblemShape problem{.batch = 2, .qHeads = 2, .kvHeads = 1};

  explicit RandomMask(uint64_t seed) : random(seed) {
    problem.qLen = 1 + int64_t(below(80));
    problem.kvLen = 1 + int64_t(below(80));
    module.sourceName = "random_mask.py";
    module.scalars = {{"s0", Type::I32}, {"s1", Type::I32}, {"s2", Type::I32}, {"flag", Type::Bool}};
    for (const char* name : {"s0", "s1", "s2"}) captures.set(name, anyInteger());
    captures.set("flag", below(2) == 1);
    lengths = {int32_t(anyInteger()), int32_t(anyInteger())};
    module.tensors.push_back({"lengths", DType::I32, {{true, int64_t(ir::BuiltinDim::B)}}});
    captures.set("lengths", TensorView::contiguous(lengths.data(), DType::I32, {2}));
    module.setOutput(ir::kMask, condition(int(below(4))));
  }
  RandomMask(const RandomMask&) = delete; // the captures point into this object

private:
  using Type = ir::Type;
  using Op = ir::Op;
  using Value = ir::Value;

  std::mt19937_64 random;
  std::vector<int32_t> lengths;

  uint64_t below(uint64_t bound) { return random() % bound; }

  int64_t anyInteger() {
    static const std::vector<int64_t> kExtreme = {INT32_MIN, INT32_MIN + 1, INT32_MAX,     INT32_MAX - 1,
                                                  1 << 24,   -(1 << 24),    (1 << 24) + 1, -(1 << 30)};
    return below(3) ? int64_t(below(200)) - 80 : kExtreme[below(kExtreme.size())];
  }

  Value integer(int64_t value) { return module.constInt(Type::I32, value); }
  Value make(Op op, Value x, Value y) { return module.make(op, module[x].type, {x, y}, 0, uint32_t(1 + below(9))); }

  /// Returns a value that depends only on batch entry and head.
  Value headValue() {
    switch (below(6)) {
    case 0: return module.scalar(unsigned(below(3)));
    case 1: return module.make(Op::Load, Type::I32, {module.param(ir::ParamKind::B)}, 0);
    case 2: return module.param(ir::ParamKind::H);
    case 3: return module.dim(unsigned(below(2) ? ir::BuiltinDim::QLen : ir::BuiltinDim::KvLen));
    default: return integer(anyInteger());
    }
  }

  Value moved(Value position) {
    switch (below(8)) {
    case 0: return make(Op::Add, position, headValue());
    case 1: return make(Op::Sub, position, headValue());
    case 2: return make(Op::FloorDiv, position, below(4) ? integer(1 + int64_t(below(20))) : headValue());
    case 3: return make(Op::Mul, position, below(2) ? integer(int64_t(below(7)) - 2) : headValue());
    case 4: return make(below(2) ? Op::Min : Op::Max, position, headValue());
    case 5: return make(Op::Sub, headValue(), position);
    default: return position;
    }
  }

  Value position(ir::ParamKind param) {
    Value value = moved(module.param(param));
    return below(4) ? value : moved(value);
  }

  Value comparison() {
    static const std::vector<Op> kCompare = {Op::Lt, Op::Le, Op::Lt, Op::Le, Op::Lt, Op::Le, Op::Eq, Op::Ne};
    Value q = position(ir::ParamKind::QIdx), kv = position(ir::ParamKind::KvIdx), other = headValue();
    Value x = kv, y = other;
    switch (below(8)) {
    case 0: x = q; break;
    case 1: break;
    case 2: x = make(Op::Sub, q, kv); break;
    case 3: x = module.make(Op::Abs, Type::I32, {make(Op::Sub, q, kv)}); break;
    case 4: x = headValue(); break;
    default: y = q; break;
    }
    if (below(8) == 0) {
      x = module.make(Op::Cast, Type::I64, {x});
      y = module.make(Op::Cast, Type::I64, {y});
    }
    if (below(2)) std::swap(x, y);
    return module.make(kCompare[below(kCompare.size())], Type::Bool, {x, y}, 0, uint32_t(1 + below(9)));
  }

  Value condition(int depth) {
    if (depth == 0) return below(12) ? comparison() : module.scalar(3);
    Value x = condition(depth - 1), y = condition(int(below(uint64_t(depth))));
    switch (below(8)) {
    case 0: return module.make(Op::Not, Type::Bool, {make(Op::And, x, y)});
    case 1: return module.make(Op::Select, Type::Bool, {condition(0), x, y});
    case 2:
    case 3: return make(Op::Or, x, y);
    default: return make(Op::And, x, y);
    }
  }
};

} // namespace attnc::test
