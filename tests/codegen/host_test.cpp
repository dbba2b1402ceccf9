// Generated code, run on the host, against the interpreter.
//
// Integers and bools must agree exactly, and so must floats where every operation is exact or correctly rounded.
// Elsewhere generated code may round otherwise than the interpreter (a reciprocal for a division, fp32 functions within
// a few ulp), and a program may amplify that without bound (exp, a comparison). The tolerance follows the program: the
// reference is evaluated in single and in double precision and with the score moved by 2^-20 of itself, about 8 ulp.
// The spread of these is what rounding does to this sample. A sample is judged if the spread is below 1e-3 of the
// value, and passes within four times the spread plus 32 ulp; most samples of a module must be judged.
#include "codegen/emit.h"
#include "codegen/host_mods.h"
#include "codegen/library_mods.h"
#include "codegen/mod_source.h"
#include "dsl/frontend.h"
#include "helpers/exact_interpreter.h"
#include "helpers/random_module.h"
#include "helpers/take.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/reader.h"
#include "passes/pipeline.h"

#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace attnc {
namespace {

using test::HostMods;
using test::Outcome;
using test::RandomModule;
using test::Sample;

constexpr double kUlp = 0x1p-23;
constexpr int kSamples = 400;

std::vector<Sample> samplesOf(const ProblemShape& problem, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Sample> samples;
  for (int i = 0; i < kSamples; ++i)
    samples.push_back({int(random() % problem.batch), int(random() % problem.qHeads), int(random() % problem.qLen),
                       int(random() % problem.kvLen), float(RandomModule::sampleScore(uint64_t(i)))});
  return samples;
}

std::vector<Outcome> run(const HostMods& host, size_t mod, const codegen::ModSource& source,
                         const ir::Bindings& bindings, const std::vector<Sample>& samples) {
  const std::vector<uint64_t> words = test::wordsOf(source, bindings);
  std::vector<Outcome> outcomes(samples.size());
  host.function(mod)(words.data(), samples.data(), int(samples.size()), outcomes.data());
  return outcomes;
}

bool sameBits(double a, double b) { return std::isnan(a) ? std::isnan(b) : a == b; }

/// What the interpreter says about one sample, with the spread that rounding may cause.
struct Reference {
  double score = 0, spread = 0;
  bool mask = false, maskIsStable = true;
};

class References {
public:
  References(const ir::Module& module, const ir::Bindings& bindings)
      : single(module, bindings), exact(module, bindings) {}

  Reference at(const Sample& s) const {
    double values[] = {single.score(s.score, s.b, s.h, s.q, s.kv), exact.score(s.score, s.b, s.h, s.q, s.kv),
                       exact.score(s.score * (1 + 0x1p-20), s.b, s.h, s.q, s.kv),
                       exact.score(s.score * (1 - 0x1p-20), s.b, s.h, s.q, s.kv)};
    Reference result{.score = values[0], .mask = single.mask(s.b, s.h, s.q, s.kv)};
    result.maskIsStable = exact.mask(s.b, s.h, s.q, s.kv) == result.mask;
    for (double value : values)
      if (!sameBits(value, result.score)) result.spread = std::max(result.spread, distance(value, result.score));
    return result;
  }

private:
  static double distance(double a, double b) {
    double difference = std::fabs(a - b);
    return std::isfinite(difference) ? difference : INFINITY;
  }
  ir::Interpreter single;
  test::ExactInterpreter exact;
};

std::string describe(const Sample& s, const Outcome& got, const Reference& want) {
  return fmt::format("b={} h={} q={} kv={} score={}: got {} {}, want {} (spread {}) {}", s.b, s.h, s.q, s.kv, s.score,
                     got.score, got.mask, want.score, want.spread, want.mask);
}

/// Number of samples judged; fails the test where one is wrong. `exact`: bit for bit, all samples.
int judge(const std::vector<Sample>& samples, const std::vector<Outcome>& outcomes, const References& references,
          bool exact) {
  int judged = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Outcome& got = outcomes[i];
    Reference want = references.at(samples[i]);
    INFO(describe(samples[i], got, want));
    if (exact) {
      bool right = got.mask == want.mask && sameBits(got.score, want.score);
      if (!right) FAIL();
      ++judged;
      continue;
    }
    if (want.maskIsStable && got.mask != want.mask) FAIL();
    double scale = std::isfinite(want.score) ? std::fabs(want.score) : 1.0;
    if (want.spread > 1e-3 * scale) continue;
    double tolerance = 4 * want.spread + 32 * kUlp * scale + 0x1p-126;
    if (!sameBits(got.score, want.score) && !(std::fabs(got.score - want.score) <= tolerance)) FAIL();
    ++judged;
  }
  return judged;
}

enum class Kind { Integers, Exact, Transcendental };

std::unique_ptr<RandomModule> makeModule(Kind kind, uint64_t seed) {
  return std::make_unique<RandomModule>(seed,
                                        test::RandomModuleOptions{.operations = 30,
                                                                  .floats = kind != Kind::Integers,
                                                                  .transcendental = kind == Kind::Transcendental,
                                                                  .lowRank = kind != Kind::Integers && seed % 4 < 2});
}

} // namespace

TEST_CASE("code of random modules computes on the host what the interpreter computes", "[codegen]") {
  struct Entry {
    Kind kind;
    uint64_t seed;
    std::unique_ptr<RandomModule> random;
    codegen::ModSource source;
  };
  std::vector<Entry> entries;
  HostMods host;
  for (Kind kind : {Kind::Integers, Kind::Exact, Kind::Transcendental})
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      auto random = makeModule(kind, seed);
      if (seed % 2) REQUIRE(passes::runPipeline(random->module)); // as they come from the pipeline, and raw
      codegen::ModSource source = test::emitMod(random->module);
      host.add(source);
      entries.push_back({kind, seed, std::move(random), std::move(source)});
    }
  host.build();

  int judged = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    INFO("kind " << int(entry.kind) << ", seed " << entry.seed << "\n" << entry.source.text);
    auto bindings = take(ir::bind(entry.random->module, entry.random->captures, entry.random->problem));
    std::vector<Sample> samples = samplesOf(entry.random->problem, entry.seed);
    std::vector<Outcome> outcomes = run(host, i, entry.source, bindings, samples);
    judged += judge(samples, outcomes, References(entry.random->module, bindings), entry.kind == Kind::Integers);
  }
  CHECK(judged > int(entries.size()) * kSamples * 3 / 4);
}

TEST_CASE("code of every library mod computes on the host what the interpreter computes", "[codegen]") {
  std::vector<test::LibraryMod> mods = test::libraryMods();
  REQUIRE(mods.size() >= 12);
  HostMods host;
  std::vector<codegen::ModSource> sources;
  for (const test::LibraryMod& mod : mods) {
    sources.push_back(test::emitMod(mod.module));
    host.add(sources.back());
  }
  host.build();
  for (size_t i = 0; i < mods.size(); ++i) {
    INFO(mods[i].name << "\n" << sources[i].text);
    std::vector<Sample> samples = samplesOf(mods[i].problem, i);
    std::vector<Outcome> outcomes = run(host, i, sources[i], mods[i].bindings, samples);
    CHECK(judge(samples, outcomes, References(mods[i].module, mods[i].bindings), false) > kSamples * 3 / 4);
  }
}

TEST_CASE("long mods, whose functions are called, compute on the host what the interpreter computes", "[codegen]") {
  struct Case {
    const char *text, *row; ///< and what of a row is kept
  };
  const Case cases[] = {{"import torch\n"
                         "def score_mod(score, b, h, q_idx, kv_idx):\n"
                         "    x = score\n"
                         "    for i in range(20):\n"
                         "        x = torch.tanh(x * 0.5) + q_idx // 3\n"
                         "    return x\n",
                         "struct Row { // known once b, h and q_idx are\n    float v"},
                        {"t: f32[64]\n" // more values of rows and columns than calls take
                         "def score_mod(score, b, h, q_idx, kv_idx):\n"
                         "    x = score\n"
                         "    for i in range(1, 200):\n"
                         "        x = x * 0.5 + t[(q_idx * i) % 64] - t[(kv_idx * i + h) % 64] + 0.125 * q_idx\n"
                         "    return x\n"
                         "def mask_mod(b, h, q_idx, kv_idx):\n"
                         "    lives = q_idx >= 0\n"
                         "    for i in range(2, 60):\n"
                         "        lives = lives & ((q_idx * i) % 5 <= (kv_idx * i) % 7 + 3)\n"
                         "    return lives\n",
                         "struct Row { // known once b, h and q_idx are\n    float q_float;\n  };"}};
  const ProblemShape problem{.batch = 2, .qHeads = 3, .kvHeads = 3, .qLen = 50, .kvLen = 70};
  std::vector<float> data(64);
  for (size_t i = 0; i < data.size(); ++i) data[i] = float(i * 37 % 64) / 8 - 4;
  Captures captures;
  captures.set("t", TensorView::contiguous(data.data(), DType::F32, {64}));
  for (const Case& one : cases) {
    auto module = take(dsl::trace(one.text, {}));
    REQUIRE(passes::runPipeline(module));
    codegen::ModSource source = test::emitMod(module);
    INFO(source.text);
    CHECK(source.text.find("ATTNC_CALLED static float score(") != std::string::npos);
    CHECK(source.text.find(one.row) != std::string::npos);
    auto bindings = take(ir::bind(module, module.tensors.empty() ? Captures() : captures, problem));
    HostMods host;
    host.add(source);
    host.build();
    const std::vector<Sample> samples = samplesOf(problem, 7);
    CHECK(judge(samples, run(host, 0, source, bindings, samples), References(module, bindings), false) > kSamples / 2);
  }
}

TEST_CASE("gathers from empty and from strided tensors agree with the interpreter", "[codegen]") {
  auto module =
      take(ir::read("dim N\ndim M\ntensor none: f32[N, Q_LEN]\ntensor table: i64[M, 3]\n"
                    "%0 = load f32 none[%kv_idx, %q_idx]\n%1 = load f32 none[%h, %kv_idx]\n"
                    "%2 = sub i32 %q_idx, %kv_idx\n%3 = load i64 table[%2, %kv_idx]\n%4 = cast f32 %3\n"
                    "%5 = add f32 %0, %1\n%6 = add f32 %4, %5\n%7 = add f32 %score, %6\noutput score(score, b, h, "
                    "q_idx, kv_idx) -> %7\n"));
  std::vector<int64_t> data = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  TensorView table = TensorView::contiguous(data.data() + 9, DType::I64, {4, 3}); // rows from last to first
  table.stride[0] = -3;
  Captures captures;
  captures.set("none", TensorView::contiguous(nullptr, DType::F32, {0, 6})).set("table", table);
  ProblemShape problem{.batch = 1, .qHeads = 2, .kvHeads = 1, .qLen = 6, .kvLen = 9};
  auto bindings = take(ir::bind(module, captures, problem));
  codegen::ModSource source = test::emitMod(module);
  HostMods host;
  host.add(source);
  INFO(source.text);
  host.build();
  std::vector<Sample> samples = samplesOf(problem, 5);
  CHECK(judge(samples, run(host, 0, source, bindings, samples), References(module, bindings), true) == kSamples);
}

TEST_CASE("without columns every library mod may be evaluated at column 0, and reads zeros there", "[codegen]") {
  const ProblemShape problem{.batch = 1, .qHeads = 2, .kvHeads = 2, .qLen = 5, .kvLen = 0};
  std::vector<test::LibraryMod> mods = test::libraryMods(problem);
  HostMods host;
  std::vector<codegen::ModSource> sources;
  for (const test::LibraryMod& mod : mods) {
    sources.push_back(test::emitMod(mod.module));
    host.add(sources.back());
  }
  host.build();
  bool sawLearnedBias = false;
  for (size_t i = 0; i < mods.size(); ++i) {
    INFO(mods[i].name << "\n" << sources[i].text);
    std::vector<Outcome> outcomes = run(host, i, sources[i], mods[i].bindings, {{0, 1, 4, 0, 2.5f}}); // no signal
    if (mods[i].name != "learned_bias") continue;
    sawLearnedBias = true;
    CHECK(outcomes[0].score == 2.5f);
  }
  CHECK(sawLearnedBias);
}

TEST_CASE("what is proved of a gather holds for column 0 where there are no columns", "[codegen]") {
  auto module = take(dsl::trace("table: f32[8]\n"
                                "def score_mod(score, b, h, q_idx, kv_idx):\n"
                                "    return score + table[min(KV_LEN - 1 - kv_idx, 7)]\n",
                                {}));
  REQUIRE(passes::runPipeline(module));
  codegen::ModSource source = test::emitMod(module);
  CHECK(source.text.find("clamp_index") == std::string::npos);
  const float data[] = {1000, 1, 2, 3, 4, 5, 6, 7, 8}; // the table begins behind the first
  Captures captures;
  captures.set("table", TensorView::contiguous(const_cast<float*>(data + 1), DType::F32, {8}));
  auto bindings = take(ir::bind(module, captures, {.batch = 1, .qHeads = 1, .kvHeads = 1, .qLen = 1, .kvLen = 0}));
  HostMods host;
  host.add(source);
  INFO(source.text);
  host.build();
  CHECK(run(host, 0, source, bindings, {{0, 0, 0, 0, 0.5f}})[0].score == 1.5f);
}

} // namespace attnc
