// How values move along the rows of a head.
#include "analysis/monotony.h"

#include <catch2/catch.hpp>

using namespace attnc;
using namespace attnc::analysis;
using ir::Op;
using ir::ParamKind;
using ir::Type;
using ir::Value;

namespace {

/// Values of one module, and their directions.
struct Rows {
  ir::Module module;
  Value q = module.param(ParamKind::QIdx), kv = module.param(ParamKind::KvIdx);

  Value number(int64_t value) { return module.constInt(Type::I32, value); }
  Value make(Op op, Value a, Value b) { return module.make(op, Type::I32, {a, b}); }
  Value asks(Op op, Value a, Value b) { return module.make(op, Type::Bool, {a, b}); }
  Direction of(Value value) {
    Intervals intervals(module);
    return Monotony(module, intervals).of(value);
  }
};

} // namespace

TEST_CASE("sums, products and quotients of q_idx move one way", "[monotony]") {
  Rows rows;
  CHECK(rows.of(rows.q) == Direction::Up);
  CHECK(rows.of(rows.module.param(ParamKind::H)) == Direction::Constant);
  CHECK(rows.of(rows.make(Op::Sub, rows.number(7), rows.q)) == Direction::Down);
  CHECK(rows.of(rows.make(Op::Mul, rows.q, rows.number(-2))) == Direction::Down);
  CHECK(rows.of(rows.make(Op::FloorDiv, rows.q, rows.number(4))) == Direction::Up);
  CHECK(rows.of(rows.make(Op::Min, rows.q, rows.number(5))) == Direction::Up);
  CHECK(rows.of(rows.make(Op::Mod, rows.q, rows.number(4))) == Direction::Unknown);
  CHECK(rows.of(rows.make(Op::Sub, rows.q, rows.make(Op::FloorDiv, rows.q, rows.number(2)))) == Direction::Unknown);
  CHECK(rows.of(rows.kv) == Direction::Unknown);
  CHECK(rows.of(rows.make(Op::Add, rows.q, rows.kv)) == Direction::Unknown);
}

TEST_CASE("comparisons turn once, from false to true or back", "[monotony]") {
  Rows rows;
  const Value below = rows.asks(Op::Lt, rows.q, rows.number(5)), from = rows.asks(Op::Le, rows.number(5), rows.q);
  CHECK(rows.of(from) == Direction::Up);
  CHECK(rows.of(below) == Direction::Down);
  CHECK(rows.of(rows.module.make(Op::Not, Type::Bool, {below})) == Direction::Up);
  CHECK(rows.of(rows.asks(Op::And, from, rows.asks(Op::Le, rows.number(9), rows.q))) == Direction::Up);
  CHECK(rows.of(rows.asks(Op::And, from, below)) == Direction::Unknown);
  CHECK(rows.of(rows.asks(Op::Eq, rows.q, rows.number(5))) == Direction::Unknown);
}

TEST_CASE("a value that may wrap around has no direction", "[monotony]") {
  Rows rows;
  rows.module.scalars.push_back({"n", Type::I32});
  CHECK(rows.of(rows.make(Op::Mul, rows.q, rows.number(64))) == Direction::Up); // below 2^30
  CHECK(rows.of(rows.make(Op::Mul, rows.q, rows.number(1 << 20))) == Direction::Unknown);
  CHECK(rows.of(rows.make(Op::Add, rows.q, rows.module.scalar(0))) == Direction::Unknown);
  rows.module.hasNearScalars = true;
  CHECK(rows.of(rows.make(Op::Add, rows.q, rows.module.scalar(0))) == Direction::Up);
}
