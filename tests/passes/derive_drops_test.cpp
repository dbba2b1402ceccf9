// Dropout taken out of prob_factor: its parts say of each weight what the factor does.
#include "helpers/derived_by.h"
#include "helpers/traced.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/philox.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace attnc;
using test::derivedBy;

namespace {

constexpr const char* kCaptures = "seeds: i64[H]\nrate: float\ndropped: int\n";
const std::string kRandom = "random(seeds[h], b, h, q_idx, kv_idx)";

ir::Module moduleOf(const std::string& weight) {
  return test::piped(kCaptures + fmt::format("def prob_mod(prob, b, h, q_idx, kv_idx):\n  return {}\n", weight));
}

} // namespace

TEST_CASE("dropout is taken apart, and its parts mean what the factor means", "[drops]") {
  for (const auto& [weight, hasRest] : {std::pair("where({} < 0.125, 0.0, prob / 0.875)", false),
                                        {"where({} < 0.1, 0.0, prob / 0.9)", true},
                                        {"where({} >= rate, prob / (1 - rate), 0.0)", true},
                                        {"where({} > rate, prob * 2.0, 0.0)", true},
                                        {"where({} < 1 - rate, prob / (1 - rate), 0.0)", true},
                                        {"where({} <= rate, prob / rate, 0.0)", true},
                                        {"where({} < dropped * 2.0**-8, 0.0, prob / (1 - dropped * 2.0**-8))", false},
                                        {"where({} < dropped / 256, 0.0, prob / (1 - dropped / 256))", false},
                                        {"where({} < dropped / 100, 0.0, prob / (1 - dropped / 100))", true},
                                        {"where({} < rate, 0.0, prob / 0.9)", true}}) {
    const ir::Module module = moduleOf(fmt::format(fmt::runtime(weight), kRandom));
    const ir::Module parts = derivedBy("derive-drops", module);
    INFO(weight);
    REQUIRE(parts.output(ir::kDropSeed));
    CHECK(!parts.output(ir::kProbFactor));
    CHECK(parts.output(ir::kDropRest).has_value() == hasRest);
    std::vector<int64_t> seeds = {7, -1, int64_t(1) << 40};
    for (const auto& [rate, dropped] : {std::pair(0.0, 0), {0.37, 3}, {0x1p-20, 200}, {1.0, 256}, {2.0, 1000}}) {
      Captures captures;
      captures.set("rate", rate).set("dropped", int64_t(dropped));
      captures.set("seeds", TensorView::contiguous(seeds.data(), DType::I64, {3}));
      const ProblemShape problem{.batch = 1, .qHeads = 3, .kvHeads = 1, .qLen = 40, .kvLen = 40};
      const auto bindings = take(ir::bind(module, captures, problem));
      ir::Evaluator whole(module, bindings, *module.output(ir::kProbFactor));
      const auto part = [&](const ir::OutputRole& role, int64_t h) -> Number {
        const std::optional<ir::Value> value = parts.output(role);
        return value ? ir::Evaluator(parts, bindings, *value).evaluate(0, 0, h, 0, 0) : Number{};
      };
      const bool isAbove = parts.output(ir::kDropAbove).has_value();
      for (int64_t h = 0; h < 3; ++h) {
        const int64_t below = part(isAbove ? ir::kDropAbove : ir::kDropBelow, h).integer,
                      rest = part(ir::kDropRest, h).integer;
        const double factor = part(ir::kKeptFactor, h).real;
        CHECK((below >= 0 && below <= 256 && rest >= 0 && rest < 65536));
        CHECK(factor > 0);
        for (int64_t q = 0; q < 40; ++q)
          for (int64_t kv = 0; kv < 40; ++kv) {
            int64_t n = int64_t(
                ir::randomAt(part(ir::kDropSeed, h).integer, 0, uint32_t(h), uint32_t(q), uint32_t(kv)) * 0x1p24f);
            if (isAbove) n = (1 << 24) - 1 - n;
            const double want = whole.evaluate(0, 0, h, q, kv).real;
            REQUIRE((n < 65536 * below + rest ? 0 : factor) == Approx(want).epsilon(5e-7).margin(0));
          }
      }
    }
  }
}

TEST_CASE("other factors are no dropout", "[drops]") {
  for (const char* weight : {"where({} < 0.1, 0.0, prob * rate)", "where({} < 0.1, 0.0, -prob)",
                             "where({} < 0.1, prob * 0.5, prob)", "where({} < q_idx / 8, 0.0, prob)", "prob * {}",
                             "where({} < 0.1, 0.0, prob * kv_idx)", "where({} == 0.0, 0.0, prob)"}) {
    INFO(weight);
    const ir::Module parts = derivedBy("derive-drops", moduleOf(fmt::format(fmt::runtime(weight), kRandom)));
    CHECK(parts.output(ir::kProbFactor));
  }
  for (const char* random : {"random(seeds[h], b, h, kv_idx, q_idx)", "random(seeds[h] + q_idx, b, h, q_idx, kv_idx)",
                             "random(seeds[h], 0, h, q_idx, kv_idx)"}) {
    INFO(random);
    const ir::Module module = moduleOf(fmt::format("where({} < 0.1, 0.0, prob)", random));
    CHECK(derivedBy("derive-drops", module).output(ir::kProbFactor));
  }
}
