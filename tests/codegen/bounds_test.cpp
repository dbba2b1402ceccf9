// The bounds in generated code, run on the host over all ranges of rows: no live column outside, no dead one in the
// full part, single rows exact, and no tile of a range that could have been left out.
#include "codegen/emit.h"
#include "codegen/host_mods.h"
#include "codegen/library_mods.h"
#include "codegen/mod_source.h"
#include "helpers/derived_by.h"
#include "helpers/library.h"
#include "helpers/random_mask.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "passes/pipeline.h"

#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace attnc {
namespace {

using test::HostMods;

/// A range of rows, and what Mod::bounds says of it.
struct RowRange {
  int b, h, begin, end;
};
struct TileBounds {
  int kvBegin, fullBegin, fullEnd, kvEnd;
};
using RunBounds = void (*)(const uint64_t* args, const RowRange* rows, int count, TileBounds* bounds);

/// An entry point for the bounds of mod `number` of a HostMods.
std::string boundsEntry(size_t number) {
  return fmt::format(R"(
extern "C" void bounds_{0}(const unsigned long long* words, const int* rows, int count, int* out) {{
  using namespace attnc::mod::mod{0};
  static_assert(Mod::kRowsAreIntervals, "");
  ModArgs args;
  memcpy(&args, words, sizeof args);
  for (int i = 0; i < count; ++i, rows += 4, out += 4) {{
    attnc::TileBounds bounds = Mod::bounds(args, Mod::head(args, rows[0], rows[1]), rows[0], rows[1], rows[2], rows[3]);
    memcpy(out, &bounds, sizeof bounds);
  }}
}}
)",
                     number);
}

/// mask_mod of one head: the first live column of each row, the one behind the last, and how many live.
struct LiveRow {
  int64_t begin = INT32_MAX, end = 0, count = 0;
};

class Checker {
public:
  Checker(const ir::Module& module, const ir::Bindings& bindings, const ProblemShape& problem, RunBounds run,
          const std::vector<uint64_t>& words)
      : interpreter(module, bindings), problem(problem), run(run), words(words) {}

  /// All ranges of 1, 2, 3, 8 and 64 rows that start anywhere. `isTight`: the ends are those of the live columns.
  void check(bool isTight) {
    for (int64_t b = 0; b < problem.batch; ++b)
      for (int64_t h = 0; h < problem.qHeads; ++h) {
        measure(b, h);
        for (int64_t size : {1, 2, 3, 8, 64})
          for (int64_t q = 0; q < problem.qLen; ++q)
            checkRange({int(b), int(h), int(q), int(std::min(q + size, problem.qLen))}, isTight || size == 1);
      }
  }

private:
  void measure(int64_t b, int64_t h) {
    live.assign(size_t(problem.qLen), {});
    for (int64_t q = 0; q < problem.qLen; ++q)
      for (int64_t kv = 0; kv < problem.kvLen; ++kv)
        if (interpreter.mask(b, h, q, kv)) {
          LiveRow& row = live[size_t(q)];
          row = {std::min(row.begin, kv), kv + 1, row.count + 1};
        }
  }

  void checkRange(const RowRange& range, bool isTight) const {
    TileBounds got;
    run(words.data(), &range, 1, &got);
    auto clip = [&](int column) { return std::clamp<int64_t>(column, 0, problem.kvLen); };
    int64_t begin = clip(got.kvBegin), end = clip(got.kvEnd), fullBegin = clip(got.fullBegin),
            fullEnd = clip(got.fullEnd);
    LiveRow hull;
    INFO("b=" << range.b << " h=" << range.h << " rows [" << range.begin << ", " << range.end << "): visits [" << begin
              << ", " << end << "), full [" << fullBegin << ", " << fullEnd << ")");
    for (int q = range.begin; q < range.end; ++q) {
      const LiveRow& row = live[size_t(q)];
      if (row.count == 0) {
        if (fullBegin < fullEnd) FAIL("row " << q << " has no live column");
        continue;
      }
      if (row.begin < begin || row.end > end) FAIL("row " << q << " lives outside");
      if (row.count != row.end - row.begin) FAIL("row " << q << " has a gap");
      if (fullBegin < fullEnd && (fullBegin < row.begin || fullEnd > row.end)) FAIL("row " << q << " is not full");
      hull = {std::min(hull.begin, row.begin), std::max(hull.end, row.end), hull.count + 1};
    }
    if (!isTight) return;
    if (hull.count == 0 ? begin < end : begin != hull.begin || end != hull.end) FAIL("more columns than live");
  }

  ir::Interpreter interpreter;
  ProblemShape problem;
  RunBounds run;
  const std::vector<uint64_t>& words;
  std::vector<LiveRow> live; // by q_idx
};

struct Entry {
  ir::Module module;
  Captures captures;
  ProblemShape problem;
  codegen::ModSource source;
  bool isTight;
};

void checkAll(const std::vector<Entry>& entries) {
  HostMods host;
  std::string extra;
  for (const Entry& entry : entries) extra += boundsEntry(host.add(entry.source));
  host.build(extra);
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    INFO(entry.source.text);
    auto bindings = take(ir::bind(entry.module, entry.captures, entry.problem));
    const std::vector<uint64_t> words = test::wordsOf(entry.source, bindings);
    auto run = reinterpret_cast<RunBounds>(host.symbol(fmt::format("bounds_{}", i).c_str()));
    Checker(entry.module, bindings, entry.problem, run, words).check(entry.isTight);
  }
}

bool saysBounds(const codegen::ModSource& source) { return source.text.find("kHasBounds = true") != std::string::npos; }

} // namespace

TEST_CASE("generated bounds of library mods hold for all ranges of rows, and visit no dead tile", "[bounds]") {
  std::vector<Entry> entries;
  const int64_t zeros = 0; // what every tensor holds
  std::vector<std::string> with;
  for (test::LibraryMod& mod : test::libraryMods()) {
    codegen::ModSource source = test::emitMod(mod.module);
    CHECK(saysBounds(source) == test::hasBounds(mod.module));
    if (!saysBounds(source)) continue;
    with.push_back(mod.name);
    for (int64_t scalar : {0, 1, 7, 33, 200, -1, -30, INT32_MAX, INT32_MIN})
      for (auto [qLen, kvLen] : {std::pair(80, 80), std::pair(13, 70), std::pair(70, 13)}) {
        if (!test::goesEverywhere(mod.name) && (scalar != 1 || qLen > kvLen)) continue; // compiling takes its time
        Entry entry{mod.module, {}, {1, 4, 2, qLen, kvLen}, source, mod.name != "sliding_window" || scalar >= 0};
        for (const ir::ScalarCapture& declared : mod.module.scalars) {
          if (declared.type == ir::Type::F32) entry.captures.set(declared.name, 2.0);
          if (declared.type == ir::Type::I32) entry.captures.set(declared.name, scalar);
        }
        const int64_t extents[] = {1, 4, 2, qLen, kvLen};
        for (const ir::TensorCapture& tensor : mod.module.tensors) {
          TensorView view{
              .data = const_cast<int64_t*>(&zeros), .dtype = tensor.dtype, .rank = int(tensor.shape.size())};
          for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
            const ir::Extent& extent = tensor.shape[axis];
            view.shape[axis] = extent.isNamed ? extents[extent.value] : extent.value;
          }
          entry.captures.set(tensor.name, view);
        }
        // Rows below the last column see nothing of a short KV, which the ends of a long range do not show.
        entry.isTight = entry.isTight && qLen <= kvLen;
        entries.push_back(std::move(entry));
      }
  }
  CHECK(with == std::vector<std::string>{"alibi",           "causal",      "chunked",          "column_sums",
                                         "entropy",         "forgetting",  "frame_causal",     "jagged_prefix_lm",
                                         "kerple",          "latent_rope", "learned_sink",     "max_logit",
                                         "padding",         "prefix_lm",   "scalable_softmax", "sigmoid",
                                         "sliding_window",  "softcap",     "softcap_approx",   "softmax1",
                                         "streaming_chunks"});
  checkAll(entries);
}

TEST_CASE("generated bounds of random masks hold for all ranges of rows", "[bounds]") {
  std::vector<std::unique_ptr<test::RandomMask>> masks; // the captures point into them
  std::vector<Entry> entries;
  for (uint64_t seed = 10000; entries.size() < 250; ++seed) {
    masks.push_back(std::make_unique<test::RandomMask>(seed));
    test::RandomMask& random = *masks.back();
    REQUIRE(passes::runPipeline(random.module));
    if (!test::hasBounds(random.module)) continue;
    entries.push_back({random.module, random.captures, random.problem, test::emitMod(random.module), false});
  }
  checkAll(entries);
}

} // namespace attnc
