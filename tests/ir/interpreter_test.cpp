#include "ir/interpreter.h"
#include "ir/printer.h"

#include <catch2/catch.hpp>

#include <chrono>

using namespace attnc;
using namespace attnc::ir;

TEST_CASE("a sliding window evaluates fast enough for the CPU reference") {
  Module m;
  m.scalars.push_back({"window", Type::I32});
  Value q = m.param(ParamKind::QIdx), kv = m.param(ParamKind::KvIdx);
  Value causal = m.make(Op::Le, Type::Bool, {kv, q});
  Value near = m.make(Op::Le, Type::Bool, {m.make(Op::Sub, Type::I32, {q, kv}), m.scalar(0)});
  m.maskMod = m.make(Op::And, Type::Bool, {causal, near});
  Captures captures;
  captures.set("window", 100);
  auto bindings = bind(m, captures, {.qLen = 4096, .kvLen = 4096});
  REQUIRE(bindings);
  Interpreter interpreter(m, *bindings);
  int64_t live = 0;
  auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < 4096; ++i)
    for (int64_t j = 0; j < 4096; ++j) live += interpreter.mask(0, 0, i, j);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  CHECK(live == 4096 * 101 - 100 * 101 / 2);
  INFO(4096.0 * 4096.0 / seconds / 1e6 << " M evaluations/s");
  CHECK(seconds < 4.0);
  WARN(4096.0 * 4096.0 / seconds / 1e6 << " M evaluations/s\n" << print(m));
}
