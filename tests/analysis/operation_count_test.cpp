// Operations by the level that knows them.
#include "analysis/operation_count.h"

#include <catch2/catch.hpp>

using namespace attnc;
using ir::Level;
using ir::Op;
using ir::ParamKind;
using ir::Type;
using ir::Value;

TEST_CASE("each operation counts once, at the outermost level that knows it", "[operation-count]") {
  ir::Module module;
  const Value q = module.make(Op::Cast, Type::F32, {module.param(ParamKind::QIdx)});
  const Value kv = module.make(Op::Cast, Type::F32, {module.param(ParamKind::KvIdx)});
  const Value h = module.make(Op::Cast, Type::F32, {module.param(ParamKind::H)});
  const Value slope = module.make(Op::Mul, Type::F32, {h, module.constF32(0.5f)});
  const Value distance = module.make(Op::Sub, Type::F32, {kv, q});
  const Value term = module.make(Op::Mul, Type::F32, {slope, distance});
  const Value score = module.make(Op::Add, Type::F32, {module.param(ParamKind::Score), term});
  const auto count = analysis::countOperations(module, {score, distance, score});
  CHECK(count.at(Level::Launch) == 0);
  CHECK(count.at(Level::Head) == 2);
  CHECK(count.at(Level::Row) == 1);
  CHECK(count.at(Level::Column) == 1);
  CHECK(count.at(Level::Element) == 3);
  CHECK(count.total() == 7);
  CHECK(count.perElement == std::map<std::string, uint64_t>{{"add", 1}, {"mul", 1}, {"sub", 1}});
  CHECK(analysis::countOperations(module, {distance}).total() == 3);
}

TEST_CASE("an operation inside a sum counts once per round", "[operation-count]") {
  ir::Module module;
  const ir::Loop loop{0, 5};
  const Value square = module.make(Op::Mul, Type::I32, {module.iter(loop), module.param(ParamKind::KvIdx)});
  const Value outside = module.make(Op::Neg, Type::I32, {module.param(ParamKind::KvIdx)});
  const Value term = module.make(Op::Add, Type::I32, {square, outside});
  const Value sum = module.make(Op::Sum, Type::I32, {term}, loop.attr());
  const auto count = analysis::countOperations(module, {sum});
  CHECK(count.at(Level::Column) == count.total());
  CHECK(count.total() == 1 + 5 * 2 + 5); // the negation; product, sum and addition of each round
}
