// Times a batch of decodes and prompts over one cache in pages, in one launch and in several:
//
//   one    all sequences as a ragged batch, by a forward kernel
//   two    decodes by a decode kernel; prompts as a ragged batch
//   apart  decodes by a decode kernel; each prompt by a launch of its own
//
// Prints a JSON line for each, with the largest difference from `apart`, in units of a row's root mean square.
#include "measure.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <random>

namespace attnc::bench {
namespace {

struct Sizes {
  int decodes = 64, decodeLength = 4096, prompts = 2, promptLength = 2048, heads = 32, kvHeads = 8, headDim = 128,
      pageSize = 16;

  int count() const { return decodes + prompts; }
  int lengthOf(int b) const { return b < decodes ? decodeLength : promptLength; }
  int rowsOf(int b) const { return b < decodes ? 1 : promptLength; }
};

DeviceTensor numbers(const std::vector<int32_t>& values) {
  return upload(values.data(), DType::I32, {int64_t(values.size())});
}

/// The sequences: decodes first, then prompts.
struct Batch {
  explicit Batch(const Sizes& sizes) : sizes(sizes) {
    std::vector<int32_t> lengthOf, starts{0};
    for (int b = 0; b < sizes.count(); ++b) {
      lengthOf.push_back(sizes.lengthOf(b));
      starts.push_back(starts.back() + sizes.rowsOf(b));
    }
    rows = starts.back();
    columns = (std::max(sizes.decodeLength, sizes.promptLength) + sizes.pageSize - 1) / sizes.pageSize;
    std::vector<int32_t> pages(size_t(sizes.count()) * size_t(columns));
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(1));
    q = drawNormal(DType::BF16, {rows, sizes.heads, sizes.headDim}, 1);
    k = drawNormal(DType::BF16, {int64_t(pages.size()), sizes.kvHeads, sizes.pageSize, sizes.headDim}, 2);
    v = drawNormal(DType::BF16, {int64_t(pages.size()), sizes.kvHeads, sizes.pageSize, sizes.headDim}, 3);
    lengths = numbers(lengthOf), cumulative = numbers(starts);
    table = upload(pages.data(), DType::I32, {sizes.count(), columns});
  }

  Sizes sizes;
  int64_t rows, columns;
  DeviceTensor q, k, v, lengths, cumulative, table;
};

/// Returns elements of an i32 tensor, from `first` on.
TensorView part(const DeviceTensor& of, int64_t first, std::initializer_list<int64_t> shape) {
  return TensorView::contiguous(static_cast<int32_t*>(of.view.data) + first, DType::I32, shape);
}

/// A launch for sequences [first, end).
class Launch {
public:
  /// As a ragged batch, or as sequences of equally many queries.
  Launch(Bench& bench, const Mod& mod, const Batch& batch, const DeviceTensor& out, int first, int end, bool isRagged)
      : bench(bench) {
    const Sizes& s = batch.sizes;
    const int64_t count = end - first, qRows = s.rowsOf(end - 1),
                  before = std::min(first, s.decodes) + int64_t(std::max(first - s.decodes, 0)) * s.promptLength;
    const auto view = [&](const DeviceTensor& of) {
      TensorView rows = of.view; // [rows, H, D]
      const int64_t row = int64_t(s.heads) * s.headDim;
      rows.rank = 4;
      rows.shape = {isRagged ? 1 : count, s.heads, isRagged ? batch.rows : qRows, s.headDim};
      rows.stride = {isRagged ? row * batch.rows : row * qRows, s.headDim, row, 1};
      if (!isRagged) rows.data = static_cast<uint16_t*>(rows.data) + before * row;
      return rows;
    };
    operands = {.q = view(batch.q), .k = batch.k.view, .v = batch.v.view};
    operands.kvLengths = part(batch.lengths, first, {count});
    operands.pageTable = part(batch.table, first * batch.columns, {count, batch.columns});
    if (isRagged) operands.cuSeqlensQ = part(batch.cumulative, first, {count + 1}), operands.maxQLen = qRows;
    outputs.out = view(out);
    prepared = take(bench.compiler.prepare(mod, operands, outputs, {}));
    workspace = take(device::Buffer::allocate(prepared->workspaceBytes()));
    take(prepared->initialise(operands, workspace.data(), bench.stream.get()));
  }

  void run() const { take(prepared->launch(operands, outputs, workspace.data(), bench.stream.get())); }
  std::string templateName() const { return prepared->kernel().compiled().back()->templateName; }

private:
  Bench& bench;
  Operands operands;
  Outputs outputs;
  std::optional<Prepared> prepared;
  device::Buffer workspace;
};

void measure(const Sizes& sizes) {
  Bench bench;
  const Mod mod = take(Mod::parse("def mask_mod(b, h, q_idx, kv_idx): return q_idx >= kv_idx\n"));
  const Batch batch(sizes);
  const auto outOf = [&] { return allocateNaN(DType::BF16, {1, batch.rows, sizes.heads, sizes.headDim}); };
  const DeviceTensor expected = outOf();
  for (const char* way : {"apart", "two", "one"}) {
    const bool isOne = way == std::string("one"), isApart = way == std::string("apart");
    const DeviceTensor out = outOf();
    const DeviceTensor& target = isApart ? expected : out;
    std::vector<Launch> launches;
    const auto add = [&](int first, int end, bool isRagged) {
      if (first < end) launches.emplace_back(bench, mod, batch, target, first, end, isRagged);
    };
    if (isOne) add(0, sizes.count(), true);
    if (!isOne) add(0, sizes.decodes, false);
    if (!isOne && !isApart) add(sizes.decodes, sizes.count(), true);
    for (int b = sizes.decodes; isApart && b < sizes.count(); ++b) add(b, b + 1, false);
    const auto run = [&] {
      for (const Launch& launch : launches) launch.run();
    };
    run();
    take(bench.stream.synchronize());
    nlohmann::json row{{"way", way}, {"launches", launches.size()}};
    for (const Launch& launch : launches) row["templates"].push_back(launch.templateName());
    row["difference"] = compareRows("out", target, expected);
    row["ms"] = rounded(bench.medianMs(run), 4);
    row["graph_ms"] = rounded(bench.graphMs([&](int) { run(); }, 8), 4);
    constexpr int kRuns = 20;
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kRuns; ++i) run();
    row["host_us"] = rounded(secondsSince(start) * 1e6 / kRuns, 1);
    take(bench.stream.synchronize());
    std::cout << row.dump() << std::endl;
  }
}

} // namespace
} // namespace attnc::bench

int main(int argc, char** argv) {
  using namespace attnc;
  bench::Sizes sizes;
  CLI::App app("Times decodes and prompts over one cache in pages, in one launch and in several.");
  app.add_option("--decodes", sizes.decodes, "sequences with one query")->capture_default_str();
  app.add_option("--decode-length", sizes.decodeLength, "keys of each")->capture_default_str();
  app.add_option("--prompts", sizes.prompts, "sequences with as many queries as keys")->capture_default_str();
  app.add_option("--prompt-length", sizes.promptLength, "keys of each")->capture_default_str();
  app.add_option("--heads", sizes.heads)->capture_default_str();
  app.add_option("--kv-heads", sizes.kvHeads)->capture_default_str();
  app.add_option("--head-dim", sizes.headDim)->capture_default_str();
  app.add_option("--page-size", sizes.pageSize)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    auto context = device::Context::create();
    if (!context) throw std::runtime_error(context.error().message);
    bench::measure(sizes);
  } catch (const std::exception& error) {
    std::cerr << "attnc-bench-mixed: " << error.what() << "\n";
    return 3;
  }
}
