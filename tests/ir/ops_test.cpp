// What the table says of operations, against what they compute.
#include "ir/ir.h"
#include "ir/semantics.h"

#include <catch2/catch.hpp>

#include <bit>

using namespace attnc;
using namespace attnc::ir;

namespace {

struct Row {
  Op op;
  const char* text;
};
const Row kRows[] = {
#define OP(Name, text, ...) {Op::Name, text},
#include "ir/ops.def"
};

const Number kIntegers[] = {{.integer = 0}, {.integer = 1}, {.integer = -3}, {.integer = 7}, {.integer = INT32_MIN}};
const Number kBools[] = {{.integer = 0}, {.integer = 1}};
const Number kReals[] = {{.real = 0.f}, {.real = -0.f}, {.real = 1.5f}, {.real = -2.f}, {.real = INFINITY}};

std::vector<Number> samplesOf(Type type) {
  if (type == Type::Bool) return {std::begin(kBools), std::end(kBools)};
  if (type == Type::F32) return {std::begin(kReals), std::end(kReals)};
  return {std::begin(kIntegers), std::end(kIntegers)};
}

/// The bits of a result; those of all NaN are one.
uint64_t bitsOf(Op op, Type from, Number a, Number b) {
  const bool isTest = info(op).rule == TypeRule::Compare;
  const Number result = semantics::apply(op, from, isTest ? Type::Bool : from, a, b);
  if (isTest || from != Type::F32) return uint64_t(result.integer);
  return std::isnan(result.real) ? 0x7fc00000u : std::bit_cast<uint32_t>(result.real);
}

} // namespace

TEST_CASE("what the table says of commutativity is so") {
  for (const Row& row : kRows) {
    const OpInfo& op = info(row.op);
    if (op.arity != 2) {
      CHECK(op.commutes == Commutes::No);
      continue;
    }
    for (Type type : {Type::Bool, Type::I32, Type::I64, Type::F32}) {
      if (!admits(op.rule, type)) continue;
      INFO(row.text << " " << name(type));
      bool isSymmetric = true;
      for (Number a : samplesOf(type))
        for (Number b : samplesOf(type)) isSymmetric &= bitsOf(row.op, type, a, b) == bitsOf(row.op, type, b, a);
      CHECK(isCommutative(row.op) == isSymmetric);
    }
  }
}

TEST_CASE("leaves come first, cost nothing, and have the numbers of their operations") {
  for (const Row& row : kRows) {
    INFO(row.text);
    const bool isLeaf = info(row.op).rule == TypeRule::Leaf;
    CHECK(isLeaf == (size_t(row.op) <= size_t(Leaf::Iter)));
    CHECK(isLeaf == (info(row.op).arity == 0));
    if (isLeaf) CHECK(info(row.op).cost.isFree());
    CHECK(info(row.op).text == std::string(row.text));
  }
  CHECK(std::size(kRows) == kOpCount);
}

TEST_CASE("gradients pass where a result can be f32 and no step is taken") {
  for (const char* without :
       {"floor", "ceil", "trunc", "round", "floor_div", "stop_gradient", "isnan", "lt", "cast", "and"})
    for (const Row& row : kRows)
      if (row.text == std::string(without)) CHECK(info(row.op).passesGradients == false);
  for (const Row& row : kRows) {
    INFO(row.text);
    const TypeRule rule = info(row.op).rule;
    if (info(row.op).passesGradients)
      CHECK((admits(rule, Type::F32) && rule != TypeRule::Compare && rule != TypeRule::Test));
  }
}
