// Lengths and offsets of sequences: what the pass adds, and that the passes behind it rely on no more than positions
// keep.
#include "analysis/intervals.h"
#include "analysis/mod_facts.h"
#include "dsl/frontend.h"
#include "helpers/derived_by.h"
#include "helpers/random_mask.h"
#include "helpers/random_module.h"
#include "helpers/same_meaning.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "passes/derive.h"
#include "passes/pipeline.h"
#include "passes/sequences.h"

#include <catch2/catch.hpp>

using namespace attnc;
using passes::SequenceForm;

namespace {

constexpr SequenceForm kForms[] = {{.lengths = true, .offsets = QueryOffsets::FromLengths},
                                   {.lengths = false, .offsets = QueryOffsets::FromLengths},
                                   {.lengths = true, .offsets = QueryOffsets::Tensor},
                                   {.lengths = false, .offsets = QueryOffsets::Tensor}};

ir::Module traced(const std::string& text) { return take(dsl::trace(text, {.name = "mod.py"})); }

ir::Module withSequences(ir::Module module, SequenceForm form) {
  take(passes::runPipeline(module, {.verify = true, .sequences = form}));
  return module;
}

/// i32 numbers as a tensor of one axis.
struct Numbers {
  std::vector<int32_t> values;
  TensorView view() { return TensorView::contiguous(values.data(), DType::I32, {int64_t(values.size())}); }
};

/// What a launch of two sequences gives.
struct Launch {
  Numbers lengths, offsets;
  Operands operands{.kvLengths = lengths.view(), .qOffsets = offsets.view()};

  ir::Bindings bind(const ir::Module& module, const Captures& captures, const ProblemShape& problem) const {
    return take(ir::bind(module, captures, problem, &operands));
  }
};

int64_t valueOf(const ir::Module& module, const ir::Bindings& bindings, const ir::OutputRole& role, int64_t b) {
  return ir::Evaluator(module, bindings, *module.output(role)).evaluate(0, b, 0, 0, 0).integer;
}

} // namespace

TEST_CASE("lengths and offsets are kept within the problem", "[sequences]") {
  const ProblemShape problem{.batch = 5, .qLen = 4, .kvLen = 10};
  const Launch launch{{{7, 0, 10, -3, 99}}, {{5, -2, 0, INT32_MAX, INT32_MIN}}};
  const auto of = [&](SequenceForm form, const ir::OutputRole& role) {
    const ir::Module module = withSequences(traced("q_idx >= kv_idx"), form);
    const ir::Bindings bindings = launch.bind(module, {}, problem);
    std::vector<int64_t> values;
    for (int64_t b = 0; b < problem.batch; ++b) values.push_back(valueOf(module, bindings, role, b));
    return values;
  };
  CHECK(of(kForms[0], ir::kKvLength) == std::vector<int64_t>{7, 0, 10, 0, 10});
  CHECK(of(kForms[0], ir::kQOffset) == std::vector<int64_t>{3, -4, 6, -4, 6});
  CHECK(of(kForms[1], ir::kQOffset) == std::vector<int64_t>{6, 6, 6, 6, 6});
  CHECK(of(kForms[3], ir::kQOffset) == std::vector<int64_t>{5, -2, 0, ir::kMaxExtent - 4, -ir::kMaxExtent});
}

TEST_CASE("what is known of rows is not taken for positions", "[sequences]") {
  for (const char* text : {"q_idx < Q_LEN", "q_idx >= 0"}) {
    ir::Module plain = traced(text);
    REQUIRE(passes::runPipeline(plain));
    CHECK(plain.isConst(*plain.output(ir::kMask)));
    for (SequenceForm form : kForms) {
      const ir::Module module = withSequences(traced(text), form);
      CHECK_FALSE(module.isConst(*module.output(ir::kMask)));
    }
    const ir::Module lengths = withSequences(traced(text), {.lengths = true});
    CHECK(lengths.isConst(*lengths.output(ir::kMask)));
  }
  const char* kGather = "t: f32[KV_LEN]\ndef score_mod(score, b, h, q_idx, kv_idx):\n    return score + t[q_idx]\n";
  const ir::Module module = withSequences(traced(kGather), kForms[0]);
  analysis::Intervals intervals(module);
  int gathers = 0;
  for (uint32_t id = 0; id < module.size(); ++id)
    if (module[{id}].op == ir::Op::Load && module.tensors[module[{id}].attr].name == "t") {
      CHECK_FALSE(intervals.provesInside({id}, 0));
      ++gathers;
    }
  CHECK(gathers == 1);
}

TEST_CASE("positions take the short ways of rows: bounds, terms of the distance", "[sequences]") {
  const std::string alibi =
      "slopes: f32[H]\ndef score_mod(score, b, h, q_idx, kv_idx):\n"
      "    return score + slopes[h] * (kv_idx - q_idx)\n"
      "def mask_mod(b, h, q_idx, kv_idx):\n    return (q_idx >= kv_idx) & (q_idx - kv_idx < 64)\n";
  for (SequenceForm form : kForms) {
    ir::Module module = withSequences(traced(alibi), form);
    REQUIRE(passes::deriveForKernels(module, {.scale = true, .rowShift = true}));
    INFO(ir::print(module));
    const analysis::ModFacts facts = analysis::modFacts(module);
    CHECK(facts.kvEdges.has_value());
    CHECK(facts.form == analysis::ScoreForm::Linear);
  }
  // A mask that captures nothing is as light with a tensor of lengths as without.
  const ir::Module causal = test::derivedBy("derive-kv-bounds", withSequences(traced("q_idx >= kv_idx"), kForms[0]));
  CHECK(analysis::modFacts(causal).weight == analysis::Weight::Light);
}

TEST_CASE("passes change no result at positions outside of the rows", "[sequences]") {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    test::RandomModule random(seed + 70000);
    const SequenceForm form = kForms[seed % std::size(kForms)];
    const ir::Module plain = [&] {
      ir::Module module = random.module;
      REQUIRE(passes::sequences(module, {.sequences = form}));
      return module;
    }();
    const ir::Module module = withSequences(random.module, form);
    INFO("seed " << seed << "\n" << ir::print(plain) << ir::print(module));
    const ProblemShape& problem = random.problem;
    const Launch launch{{{int32_t(seed % 20), 9}}, {{int32_t(seed % 300) - 150, ir::kMaxExtent}}};
    const ir::Bindings before = launch.bind(plain, random.captures, problem),
                       after = launch.bind(module, random.captures, problem);
    const ir::Interpreter x(plain, before), y(module, after);
    for (int64_t b = 0; b < problem.batch; ++b) {
      REQUIRE(valueOf(plain, before, ir::kQOffset, b) == valueOf(module, after, ir::kQOffset, b));
      const int64_t offset = valueOf(module, after, ir::kQOffset, b);
      for (int64_t row = 0; row < problem.qLen; row += 3)
        for (int64_t kv = 0; kv < problem.kvLen; kv += 4) {
          const double score = test::RandomModule::sampleScore(uint64_t(row * 31 + kv));
          const double want = test::effectiveScore(x, score, b, 1, offset + row, kv);
          const double got = test::effectiveScore(y, score, b, 1, offset + row, kv);
          INFO("b " << b << " position " << offset + row << " kv " << kv << " score " << score);
          const bool isMasked = got == -std::numeric_limits<double>::infinity();
          CHECK((want == got || (std::isnan(want) && (std::isnan(got) || isMasked))));
        }
    }
  }
}

TEST_CASE("by rows a module gives what it gives at their positions", "[sequences]") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    test::RandomModule random(seed + 80000);
    const SequenceForm form = kForms[seed % std::size(kForms)];
    const ir::Module module = withSequences(random.module, form), rows = passes::byRows(module);
    CHECK_FALSE(rows.offsetsQueries);
    CHECK_FALSE(ir::verify(rows).has_value());
    const ProblemShape& problem = random.problem;
    const Launch launch{{{5, 17}}, {{-4, 90}}};
    const ir::Bindings bindings = launch.bind(module, random.captures, problem),
                       same = launch.bind(rows, random.captures, problem);
    const ir::Interpreter x(module, bindings), y(rows, same);
    INFO("seed " << seed << "\n" << ir::print(module) << ir::print(rows));
    for (int64_t b = 0; b < problem.batch; ++b)
      for (int64_t row = 0; row < problem.qLen; row += 3)
        for (int64_t kv = 0; kv < problem.kvLen; kv += 5) {
          const int64_t q = valueOf(module, bindings, ir::kQOffset, b) + row;
          CHECK(x.mask(b, 2, q, kv) == y.mask(b, 2, row, kv));
          CHECK(test::sameNumber(x.score(0.5, b, 2, q, kv), y.score(0.5, b, 2, row, kv)));
        }
  }
}

TEST_CASE("bounds by positions are exact", "[sequences]") {
  int withBounds = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    test::RandomMask random(seed);
    const ir::Module module = withSequences(random.module, kForms[2]);
    const ir::Module derived = test::derivedBy("derive-kv-bounds", module);
    if (!derived.output(ir::kKvBegin)) continue;
    ++withBounds;
    INFO("seed " << seed << "\n" << ir::print(derived));
    Launch launch{{std::vector<int32_t>(size_t(random.problem.batch), 3)}, {}};
    for (int64_t b = 0; b < random.problem.batch; ++b)
      launch.offsets.values.push_back(int32_t(seed % 90) - 30 + int32_t(b) * 7);
    launch.operands.qOffsets = launch.offsets.view();
    const ir::Bindings bindings = launch.bind(module, random.captures, random.problem);
    const ir::Interpreter mask(module, bindings);
    const ir::Evaluator begin(derived, bindings, *derived.output(ir::kKvBegin)),
        end(derived, bindings, *derived.output(ir::kKvEnd));
    for (int64_t b = 0; b < random.problem.batch; ++b)
      for (int64_t row = 0; row < random.problem.qLen; ++row) {
        const int64_t q = valueOf(module, bindings, ir::kQOffset, b) + row;
        const int64_t from = begin.evaluate(0, b, 0, q, 0).integer, to = end.evaluate(0, b, 0, q, 0).integer;
        for (int64_t kv = 0; kv < random.problem.kvLen; ++kv)
          if (mask.mask(b, 0, q, kv) != (from <= kv && kv < to)) FAIL("position " << q << " column " << kv);
      }
  }
  CHECK(withBounds > 70);
}

TEST_CASE("a capture with a name of attnc's own is refused", "[sequences]") {
  const std::string text = "attnc_q_offset: i32[B]\ndef mask_mod(b, h, q_idx, kv_idx):\n"
                           "    return q_idx + attnc_q_offset[b] >= kv_idx\n";
  withSequences(traced(text), kForms[0]);
  ir::Module module = traced(text);
  CHECK(environmentErrorOf(passes::runPipeline(module, {.sequences = {.offsets = QueryOffsets::Tensor}})) ==
        "the mod captures 'attnc_q_offset', a name that attnc needs for itself");
}
