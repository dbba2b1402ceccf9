// Hooks of gradients of captures, compiled for the host, against the IR.
#include "analysis/gradient_access.h"
#include "codegen/emit.h"
#include "codegen/host_mods.h"
#include "codegen/library_mods.h"
#include "codegen/mod_source.h"
#include "helpers/differences.h"
#include "ir/interpreter.h"

#include <fmt/format.h>

namespace attnc {
namespace {

using test::HostMods;

struct Place {
  int b, h, q, kv;
  float score, grad;
  int place, round;
};
struct Hooked {
  float value;
  long long offset, shared; // shared: of another element that has the same offset, going by the reach
  int capture, rounds;
};

/// An entry point for the hooks of mod `number` of a HostMods. `ofSinks`: whether sink_mod has some.
std::string captureEntry(size_t number, bool ofSinks) {
  return fmt::format(R"(
struct Place{0} {{ int b, h, q, kv; float score, grad; int place, round; }};
struct Hooked{0} {{ float value; long long offset, shared; int capture, rounds; }};
extern "C" void captures_{0}(const unsigned long long* words, const Place{0}* in, Hooked{0}* out, int q_len, int kv_len) {{
  using namespace attnc::mod::mod{0};
  using attnc::GradientReach;
  ModArgs args;
  memcpy(&args, words, sizeof args);
  const auto [b, h, q, kv, score, grad, place, round] = *in;
  auto head = Mod::head(args, b, h);
  auto row = Mod::row(args, head, b, h, q, float(q));
  auto col = Mod::col(args, head, b, h, kv, float(kv), 0.f);
  const auto visit = [&, place = place, round = round, q = q, kv = kv, b = b, h = h, score = score, grad = grad](auto gradient) {{
    using Gradient = decltype(gradient);
    if (Gradient::kIndex != place) return;
    const attnc::Coord at{{b, h, q, kv}};
    out->value = Gradient::value(args, head, row, col, at, score, grad, round);
    out->offset = Gradient::offset(args, head, row, col, at, round);
    out->capture = Gradient::kCapture;
    out->rounds = Gradient::kRounds;
    const int by = q + 1 < q_len && kv + 1 < kv_len ? 1 : q && kv ? -1 : 0;
    auto other_row = Mod::row(args, head, b, h, q + by, float(q + by));
    auto other_col = Mod::col(args, head, b, h, kv + by, float(kv + by), 0.f);
    const int turn = Gradient::kRoundMoves ? round : 0;
    switch (Gradient::kReach) {{
    case GradientReach::Head: out->shared = Gradient::offset(args, head, Mod::Row{{}}, Mod::Col{{}}, {{b, h, 0, 0}}, turn); break;
    case GradientReach::Row: out->shared = Gradient::offset(args, head, row, Mod::Col{{}}, {{b, h, q, 0}}, turn); break;
    case GradientReach::Column: out->shared = Gradient::offset(args, head, Mod::Row{{}}, col, {{b, h, 0, kv}}, turn); break;
    case GradientReach::Diagonal:
      out->shared = Gradient::offset(args, head, other_row, other_col, {{b, h, q + by, kv + by}}, turn);
      break;
    case GradientReach::Element: out->shared = out->offset; break;
    }}
  }};
  Mod::gradients(visit);
  {1}
}}
)",
                     number, ofSinks ? "Mod::sink_gradients(visit);" : "");
}
using RunCaptures = void (*)(const uint64_t* words, const Place* in, Hooked* out, int qLen, int kvLen);

} // namespace

TEST_CASE("gradients of captures of generated code are those of the IR, at the offsets of a dense tensor",
          "[autodiff]") {
  struct Entry {
    const test::LibraryMod* mod;
    passes::Gradients gradients;
    std::vector<std::string> names;
    codegen::ModSource source;
  };
  const std::vector<test::LibraryMod> mods = test::libraryMods();
  std::vector<Entry> entries;
  HostMods host;
  std::string extra;
  for (const test::LibraryMod& mod : mods)
    for (bool scale : {false, true}) {
      Entry entry{&mod, test::gradientsOf(mod.module), passes::floatCaptures(mod.module), {}};
      if (entry.names.empty()) continue;
      const ir::Module all = test::derived(entry.gradients.module, {.scale = scale});
      entry.source = codegen::emitMod(all, analysis::modFacts(all), entry.gradients.module.size(),
                                      {entry.names, entry.gradients.captures});
      extra += captureEntry(host.add(entry.source), entry.source.text.find("sink_gradients") != std::string::npos);
      entries.push_back(std::move(entry));
    }
  host.build(extra);
  int compared = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    INFO(entry.mod->name << "\n" << entry.source.text);
    const ir::Module& module = entry.gradients.module;
    const ProblemShape& problem = entry.mod->problem;
    const std::vector<uint64_t> words = test::wordsOf(entry.source, entry.mod->bindings);
    auto run = reinterpret_cast<RunCaptures>(host.symbol(fmt::format("captures_{}", i).c_str()));
    for (size_t number = 0; number < entry.gradients.captures.size(); ++number) {
      const ir::CaptureGradient& place = entry.gradients.captures[number];
      const ir::Evaluator value(module, entry.mod->bindings, *module.output(place.output));
      std::vector<ir::Evaluator> indices;
      for (const std::string& name : place.indices)
        indices.emplace_back(module, entry.mod->bindings, *module.output(name));
      const auto tensor = llvm::find_if(module.tensors, [&](const auto& t) { return t.name == place.capture; });
      for (int sample = 0; sample < 100; ++sample) {
        const test::Point at = test::pointOf(sample, problem);
        const auto [b, h, q, kv] = at.coordinates;
        const Place in{int(b),          int(h),
                       int(q),          int(kv),
                       float(at.score), float(test::sampleScore(sample + 1)),
                       int(number),     int(sample % place.rounds)};
        Hooked got{};
        run(words.data(), &in, &got, int(problem.qLen), int(problem.kvLen));
        INFO(place.output << " at " << q << ", " << kv << ", round " << in.round);
        const float want = value.evaluate(in.score, b, h, q, kv, in.grad, in.round).real;
        CHECK(std::fabs(got.value - want) <= 1e-5f * std::max(std::fabs(in.grad), std::fabs(want)));
        long long offset = 0;
        for (size_t axis = 0; axis < indices.size(); ++axis) {
          const int64_t size = entry.mod->bindings.tensors[size_t(tensor - module.tensors.begin())].shape[axis];
          const int64_t index = indices[axis].evaluate(in.score, b, h, q, kv, in.grad, in.round).integer;
          offset = offset * size + std::clamp<int64_t>(index, 0, size - 1);
        }
        CHECK(got.offset == offset);
        CHECK(got.shared == offset);
        CHECK(entry.names[size_t(got.capture)] == place.capture);
        CHECK(got.rounds == place.rounds);
        ++compared;
      }
    }
  }
  CHECK(compared >= 1000);
}

} // namespace attnc
