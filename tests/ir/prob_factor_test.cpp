// The factor of a prob_mod: found in what is a multiple of the weight, and in nothing else.
#include "helpers/take.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/prob_factor.h"
#include "ir/reader.h"

#include <catch2/catch.hpp>

#include <string>

using namespace attnc;
using namespace attnc::ir;

namespace {

/// Returns whether a text's output `score` is a multiple of %score, and checks the factor at some places.
bool isMultiple(const std::string& text) {
  INFO(text);
  Module module = take(read(text + "output score(score, b, h, q_idx, kv_idx) -> %v"));
  const Value whole = *module.output(kScore);
  const std::optional<Value> factor = probFactor(module, whole);
  if (!factor) return false;
  module.setOutput(kProbFactor, *factor); // its parameters have no score
  const Bindings bindings = take(bind(module, {}, {}));
  const Interpreter interpreter(module, bindings);
  for (int64_t at = 0; at < 20; ++at)
    for (float weight : {0.f, 0.25f, 1.f})
      CHECK(interpreter.score(weight, 1, at % 3, at % 5, at) ==
            Approx(weight * interpreter.probFactor(1, at % 3, at % 5, at)).margin(1e-7));
  return true;
}

} // namespace

TEST_CASE("a prob_mod that multiplies the weight has a factor") {
  const std::string keep = "%0 = cast i64 %b\n%1 = random f32 %0, %b, %h, %q_idx, %kv_idx\n%2 = lt f32 %1, 0.5\n";
  CHECK(isMultiple(keep + "%3 = div f32 %score, 0.5\n%v = select f32 %2, 0.0, %3\n"));
  CHECK(isMultiple(keep + "%3 = add f32 %score, %score\n%4 = neg f32 %score\n%v = select f32 %2, %3, %4\n"));
  CHECK(isMultiple("%0 = cast f32 %kv_idx\n%1 = mul f32 %0, %score\n%2 = mul f32 %1, %0\n%v = sub f32 %2, %score\n"));
  CHECK(isMultiple("%v = mul f32 0.0, %score\n"));
}

TEST_CASE("a prob_mod that is no multiple of the weight has no factor") {
  CHECK_FALSE(isMultiple("%v = mul f32 %score, %score\n"));
  CHECK_FALSE(isMultiple("%v = add f32 %score, 0.5\n"));
  CHECK_FALSE(isMultiple("%v = div f32 1.0, %score\n"));
  CHECK_FALSE(isMultiple("%v = exp f32 %score\n"));
  CHECK_FALSE(isMultiple("%0 = lt f32 %score, 0.5\n%v = select f32 %0, 0.0, %score\n"));
  CHECK_FALSE(isMultiple("%0 = lt i32 %q_idx, 3\n%v = select f32 %0, 1.0, %score\n"));
}
