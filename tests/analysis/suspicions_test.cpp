// What is said of masks, against mask_mod itself.
#include "analysis/suspicions.h"

#include "helpers/random_mask.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/printer.h"
#include "passes/pipeline.h"

#include <catch2/catch.hpp>

using namespace attnc;
using analysis::Suspicion;

TEST_CASE("random masks that are said to be constant are", "[analysis]") {
  int constant[2] = {};
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    const test::RandomMask random(seed);
    ir::Module simplified = random.module;
    REQUIRE(passes::runPipeline(simplified));
    for (const Suspicion& one : analysis::suspicions(random.module, simplified)) {
      const bool isTrue = one.kind == Suspicion::Kind::MaskAlwaysTrue;
      if (!isTrue && one.kind != Suspicion::Kind::MaskAlwaysFalse) continue;
      ++constant[isTrue];
      INFO("seed " << seed << "\n" << ir::print(random.module));
      const auto bindings = ir::bind(random.module, random.captures, random.problem);
      REQUIRE(bindings);
      const ir::Interpreter interpreter(random.module, *bindings);
      int64_t live = 0;
      const ProblemShape& of = random.problem;
      for (int64_t b = 0; b < of.batch; ++b)
        for (int64_t h = 0; h < of.qHeads; ++h)
          for (int64_t q = 0; q < of.qLen; ++q)
            for (int64_t kv = 0; kv < of.kvLen; ++kv) live += interpreter.mask(b, h, q, kv);
      CHECK(live == (isTrue ? of.batch * of.qHeads * of.qLen * of.kvLen : 0));
    }
  }
  for (const int count : constant) CHECK(count > 100);
}
