// Tensors of more than 2^31 elements: operands, results, gradients, captures, caches and pools of pages. Small problems
// lie at both ends of them; the reference computes each of these by itself. All else is zero, or NaN where no kernel
// may read.
#include "grid_cases.h"

#include "api/mod_impl.h"
#include "reference/compare.h"
#include "reference/gradients.h"

#include <array>
#include <memory>
#include <utility>

using namespace attnc;
using namespace attnc::gputest;

namespace {

constexpr int64_t kInts = int64_t(1) << 31; // elements that an int32 tells apart

// Skips the test where the GPU has less memory left than the largest of them takes.
#define ATTNC_NEED_MEMORY()                                                                                            \
  ATTNC_NEED_GPU();                                                                                                    \
  if (const auto most = device::Buffer::allocate(size_t(34) << 30); !most) {                                           \
    WARN("SKIPPED: " << most.error().message);                                                                         \
    return;                                                                                                            \
  }

/// A tensor [batch, heads, rows, columns] in device memory. Copies share the memory.
struct Large {
  std::shared_ptr<device::Buffer> memory;
  TensorView view;

  /// All bytes are `fill`, those of `spare` elements behind the tensor as well.
  Large(DType dtype, std::array<int64_t, 4> shape, uint8_t fill, int64_t spare = 0)
      : view(TensorView::contiguous(nullptr, dtype, {shape[0], shape[1], shape[2], shape[3]})) {
    const int64_t bytes = (view.elements() + spare) * dtypeBytes(dtype);
    memory = std::make_shared<device::Buffer>(take(device::Buffer::allocate(size_t(bytes))));
    take(memory->fill(fill));
    view.data = memory->data();
  }

  /// Returns the same tensor, beginning `elements` elements later.
  Large shifted(int64_t elements) const {
    Large other = *this;
    other.view.data = static_cast<char*>(view.data) + elements * dtypeBytes(view.dtype);
    return other;
  }

  /// The place of a row in the memory, in bytes.
  size_t placeOf(int64_t b, int64_t h, int64_t row) const {
    const int64_t elements = b * view.stride[0] + h * view.stride[1] + row * view.stride[2];
    return size_t(static_cast<char*>(view.data) - static_cast<char*>(memory->data()) +
                  elements * dtypeBytes(view.dtype));
  }

  /// Writes row `from` of each head of a dense tensor [1, heads, rows, columns].
  void putRow(const cli::HostTensor& tensor, int64_t from, int64_t b, int64_t row) const {
    const auto bytes = size_t(tensor.shape[3] * dtypeBytes(tensor.dtype));
    for (int64_t h = 0; h < tensor.shape[1]; ++h)
      take(memory->upload(tensor.bytes.data() + size_t(h * tensor.shape[2] + from) * bytes, bytes, placeOf(b, h, row)));
  }
  /// Writes all rows of it, the first one to `row`.
  void put(const cli::HostTensor& tensor, int64_t b, int64_t row) const {
    for (int64_t i = 0; i < tensor.shape[2]; ++i) putRow(tensor, i, b, row + i);
  }

  /// Returns rows of all heads, [heads, count, columns].
  std::vector<double> get(int64_t b, int64_t row, int64_t count) const {
    cli::HostTensor tensor = cli::HostTensor::make(view.dtype, {view.shape[1], count, view.shape[3]});
    const auto bytes = size_t(view.shape[3] * dtypeBytes(view.dtype));
    for (int64_t h = 0; h < view.shape[1]; ++h)
      for (int64_t i = 0; i < count; ++i)
        take(memory->download(tensor.bytes.data() + size_t(h * count + i) * bytes, bytes, placeOf(b, h, row + i)));
    return toDoubles(tensor);
  }
};

/// [batch, heads, rows] in f32, NaN.
Large perRow(int64_t batch, int64_t heads, int64_t rows) {
  Large tensor(DType::F32, {batch, heads, rows, 1}, 0xff);
  tensor.view.rank = 3;
  return tensor;
}

device::Buffer uploaded(const std::vector<int32_t>& numbers) {
  device::Buffer buffer = take(device::Buffer::allocate(numbers.size() * 4));
  take(buffer.upload(numbers.data(), numbers.size() * 4));
  return buffer;
}

device::Buffer poisoned(size_t bytes) {
  device::Buffer buffer = take(device::Buffer::allocate(bytes));
  take(buffer.fill(0xff));
  return buffer;
}

void runForward(const Mod& mod, const Operands& inputs, const Outputs& outputs, const PrepareOptions& options) {
  Gpu& device = *gpu();
  const Prepared prepared = take(device.compiler.prepare(mod, inputs, outputs, options));
  const device::Buffer workspace = poisoned(prepared.workspaceBytes());
  take(prepared.initialise(inputs, workspace.data(), device.stream.get()));
  take(prepared.launch(inputs, outputs, workspace.data(), device.stream.get()));
  take(device.stream.synchronize());
}

/// Both passes.
void runTraining(const Mod& mod, const BackwardOperands& inputs, const BackwardOutputs& gradients,
                 const PrepareOptions& options) {
  Gpu& device = *gpu();
  const Outputs outputs{.out = inputs.out, .lse = inputs.lse};
  const Prepared prepared = take(device.compiler.prepareTraining(mod, inputs, outputs, gradients, options));
  const device::Buffer workspace = poisoned(prepared.workspaceBytes());
  take(prepared.initialise(inputs, workspace.data(), device.stream.get()));
  take(prepared.launch(inputs, outputs, workspace.data(), device.stream.get()));
  take(prepared.launchBackward(inputs, gradients, workspace.data(), device.stream.get()));
  take(device.stream.synchronize());
}

bool hasSm90() {
  const std::vector<Family> families = familiesFor(Mod::identity(), {{1, 1, 1, 1, 1}});
  return families.back() == Family::Sm90;
}

/// Many short sequences.
struct Batch {
  Family family;
  int headDim = 128;
  int64_t length = 128; ///< of a sequence; of a ragged batch, the least
  bool ragged = false;
  std::string arch = {}; ///< as PrepareOptions::arch
};

/// Both passes, with q, k, v, out and their gradients of more than 2^31 elements.
void checkTraining(const Mod& mod, const Batch& c) {
  INFO(familyName(c.family) << " " << c.arch << ", head dim " << c.headDim << (c.ragged ? ", ragged" : ""));
  constexpr int64_t kHeads = 2, kRowsApart = 512;
  const int64_t ofRow = kHeads * c.headDim, sequences = kInts / (ofRow * c.length) + 64;
  std::vector<int32_t> starts{0};
  for (int64_t b = 0; b < sequences; ++b) starts.push_back(starts.back() + int32_t(c.length + (c.ragged ? b % 7 : 0)));
  const int64_t batch = c.ragged ? 1 : sequences, rows = c.ragged ? starts.back() : c.length;
  const auto make = [&](uint8_t fill, int64_t spare = 0) {
    if (!c.ragged) return Large(DType::BF16, {batch, kHeads, rows, c.headDim}, fill, spare);
    Large tensor(DType::BF16, {batch, rows, kHeads, c.headDim}, fill, spare);
    std::swap(tensor.view.shape[1], tensor.view.shape[2]);
    std::swap(tensor.view.stride[1], tensor.view.stride[2]);
    return tensor;
  };
  // What is read lies in one memory, where the rows of a sequence of one tensor are apart from those of another.
  const int64_t apart = kRowsApart * ofRow;
  const Large q = make(0, 3 * apart), k = q.shifted(apart), v = q.shifted(2 * apart), dOut = q.shifted(3 * apart);
  const Large out = make(0xff), dQ = make(0xff), dK = make(0xff), dV = make(0xff), lse = perRow(batch, kHeads, rows);

  struct End {
    Problem problem;
    HostOperands operands;
    ResultGradients given;
    int64_t b, row;
  };
  std::vector<End> ends;
  for (int64_t s : {int64_t(0), sequences - 1}) {
    const int64_t length = starts[size_t(s) + 1] - starts[size_t(s)];
    Problem problem{{1, kHeads, kHeads, length, length}, c.headDim, c.headDim, DType::BF16};
    problem.seed = uint64_t(s) + 1;
    ends.push_back({problem, draw(mod, problem), drawGradients(problem, /*withLse=*/false), c.ragged ? 0 : s,
                    c.ragged ? starts[size_t(s)] : 0});
    const End& end = ends.back();
    q.put(end.operands.q, end.b, end.row);
    k.put(end.operands.k, end.b, end.row);
    v.put(end.operands.v, end.b, end.row);
    dOut.put(end.given.dOut, end.b, end.row);
  }
  REQUIRE(int64_t(q.placeOf(ends[1].b, 0, ends[1].row)) / dtypeBytes(DType::BF16) > kInts);

  const device::Buffer cumulative = uploaded(starts);
  BackwardOperands inputs{{.q = q.view, .k = k.view, .v = v.view}};
  if (c.ragged) {
    const int64_t longest = c.length + 6;
    inputs.cuSeqlensQ = TensorView::contiguous(cumulative.data(), DType::I32, {sequences + 1});
    inputs.maxQLen = inputs.maxKvLen = longest;
  }
  inputs.out = out.view;
  inputs.lse = lse.view;
  inputs.dOut = dOut.view;
  runTraining(mod, inputs, {.dQ = dQ.view, .dK = dK.view, .dV = dV.view}, {.family = c.family, .arch = c.arch});

  for (const End& end : ends) {
    INFO("batch entry " << end.b << ", from row " << end.row);
    const auto rowsOf = [&](const Large& tensor) { return tensor.get(end.b, end.row, end.problem.shape.qLen); };
    checkClose({rowsOf(out), rowsOf(lse), {}, {}, {}}, runReference(mod, end.problem, end.operands), end.problem);
    checkGradients({rowsOf(dQ), rowsOf(dK), rowsOf(dV)}, runReferenceBackward(mod, end.operands, end.given),
                   end.problem);
  }
}

/// Decode and forward kernels that append rows to a cache whose K and V have more than 2^31 elements each. `pageSize`:
/// 0: the cache is not in pages.
void checkCache(int pageSize) {
  constexpr int64_t kRows = 500, kNew = 5, kHeads = 8, kKvHeads = 2, kDim = 128;
  const Mod mod = take(Mod::parse("def mask_mod(b, h, q_idx, kv_idx):\n    return q_idx - kv_idx < 300\n"));
  // The first sequence has rows at the beginning of the cache, the other one at its end.
  const int64_t count = kInts / (kKvHeads * kDim * (pageSize ? pageSize : 2)) + 4096; // pages, or rows of a sequence
  const int64_t columns = pageSize ? (kRows + pageSize - 1) / pageSize : 0;
  std::vector<int32_t> table, lengths{int32_t(kRows), int32_t(pageSize ? kRows : count)};
  for (int64_t i = 0; i < columns; ++i) table.push_back(int32_t(i));
  for (int64_t i = 0; i < columns; ++i) table.push_back(int32_t(count - 1 - i));
  const auto placeOf = [&](int64_t sequence, int64_t i) -> std::pair<int64_t, int64_t> {
    if (pageSize) return {table[size_t(sequence * columns + i / pageSize)], i % pageSize};
    return {sequence, sequence ? count - kRows + i : i};
  };
  const auto makeCache = [&] {
    if (pageSize) return Large(DType::BF16, {count, kKvHeads, pageSize, kDim}, 0xff);
    return Large(DType::BF16, {2, kKvHeads, count, kDim}, 0);
  };
  const auto makeNew = [&](int64_t heads, uint8_t fill) { return Large(DType::BF16, {2, heads, kNew, kDim}, fill); };
  const Large k = makeCache(), v = makeCache(), newK = makeNew(kKvHeads, 0), newV = makeNew(kKvHeads, 0);
  const Large q = makeNew(kHeads, 0);
  REQUIRE(k.view.elements() > kInts);

  const Problem problem{{1, kHeads, kKvHeads, kNew, kRows}, int(kDim), int(kDim), DType::BF16};
  std::vector<Outcome> expected;
  for (int64_t sequence : {0, 1}) {
    Problem of = problem;
    of.seed = uint64_t(sequence) + 1;
    HostOperands operands = draw(mod, of);
    operands.kvLengths = {int32_t(kRows)};
    expected.push_back(runReference(mod, of, operands));
    q.put(operands.q, sequence, 0);
    for (int64_t i = 0; i < kRows; ++i) {
      const bool isNew = i >= kRows - kNew;
      const auto [entry, row] = isNew ? std::pair(sequence, i - (kRows - kNew)) : placeOf(sequence, i);
      (isNew ? newK : k).putRow(operands.k, i, entry, row);
      (isNew ? newV : v).putRow(operands.v, i, entry, row);
    }
  }

  const device::Buffer deviceTable = uploaded(table), deviceLengths = uploaded(lengths);
  Operands inputs{.q = q.view, .k = k.view, .v = v.view};
  inputs.kvLengths = TensorView::contiguous(deviceLengths.data(), DType::I32, {2});
  if (pageSize) inputs.pageTable = TensorView::contiguous(deviceTable.data(), DType::I32, {2, columns});
  inputs.newK = newK.view;
  inputs.newV = newV.view;
  cli::HostTensor nothing = cli::HostTensor::make(DType::BF16, {1, kKvHeads, 1, kDim});
  std::fill(nothing.bytes.begin(), nothing.bytes.end(), char(0xff));
  const auto check = [&](Family family, bool decode) {
    INFO(familyName(family) << (decode ? ", decode" : ", forward") << ", pages of " << pageSize);
    const Large out = makeNew(kHeads, 0xff), lse = perRow(2, kHeads, kNew);
    const auto eachNew = [&](auto visit) {
      for (int64_t sequence : {0, 1})
        for (int64_t i = 0; i < kNew; ++i) {
          const auto [entry, row] = placeOf(sequence, kRows - kNew + i);
          visit(sequence, i, entry, row);
        }
    };
    eachNew([&](int64_t, int64_t, int64_t entry, int64_t row) {
      k.putRow(nothing, 0, entry, row);
      v.putRow(nothing, 0, entry, row);
    });
    runForward(mod, inputs, {.out = out.view, .lse = lse.view}, {.family = family, .decode = decode});
    for (int64_t sequence : {0, 1})
      checkClose({out.get(sequence, 0, kNew), lse.get(sequence, 0, kNew), {}, {}, {}}, expected[size_t(sequence)],
                 problem);
    eachNew([&](int64_t sequence, int64_t i, int64_t entry, int64_t row) {
      CHECK(k.get(entry, row, 1) == newK.get(sequence, i, 1));
      CHECK(v.get(entry, row, 1) == newV.get(sequence, i, 1));
    });
  };
  for (Family family : {Family::Auto, Family::Sm80}) check(family, /*decode=*/true);
  for (Family family : familiesFor(mod, problem)) check(family, /*decode=*/false);
}

} // namespace

TEST_CASE("out and gradients of more than 2^31 elements", "[gpu][huge]") {
  ATTNC_NEED_MEMORY();
  const Mod causal = libraryMod("causal");
  checkTraining(causal, {.family = Family::Naive, .length = 16});
  for (int headDim : {128, 256}) checkTraining(causal, {.family = Family::Sm80, .headDim = headDim});
}

TEST_CASE("out and gradients of more than 2^31 elements on Hopper", "[gpu][huge]") {
  ATTNC_NEED_MEMORY();
  if (!hasSm90()) {
    WARN("SKIPPED: needs sm_90a");
    return;
  }
  const Mod causal = libraryMod("causal");
  for (int headDim : {128, 256}) checkTraining(causal, {.family = Family::Sm90, .headDim = headDim});
}

GRID_TEST_CASE(Backward, "out and gradients of more than 2^31 elements by boxes of a grid", "[gpu][huge]") {
  ATTNC_NEED_MEMORY();
  const Mod image = libraryMod("neighborhood2d", {{"HEIGHT", "16"}, {"WIDTH", "16"}, {"WINDOW", "(5, 7)"}});
  for (const std::string& arch : gridArchs(image, KernelKind::Backward))
    checkTraining(image, {.family = Family::Grid, .length = 16 * 16, .arch = arch});
}

TEST_CASE("a ragged batch of more than 2^31 elements, and its gradients", "[gpu][huge]") {
  ATTNC_NEED_MEMORY();
  const Mod causal = libraryMod("causal");
  checkTraining(causal, {.family = Family::Naive, .length = 16, .ragged = true});
  checkTraining(causal, {.family = Family::Sm80, .length = 300, .ragged = true});
  if (hasSm90()) checkTraining(causal, {.family = Family::Sm90, .length = 300, .ragged = true});
}

TEST_CASE("a cache of more than 2^31 elements", "[gpu][huge]") {
  ATTNC_NEED_MEMORY();
  checkCache(0);
}

TEST_CASE("a pool of pages of more than 2^31 elements", "[gpu][huge]") {
  ATTNC_NEED_MEMORY();
  checkCache(64);
}

TEST_CASE("a captured table of more than 2^31 elements, and its gradient", "[gpu][huge]") {
  ATTNC_NEED_MEMORY();
  constexpr int64_t kLength = 50'000, kCorner = 400;
  constexpr int kDim = 64;
  const Mod mod =
      take(Mod::parse("table: bf16[Q_LEN, KV_LEN]\n"
                      "def score_mod(score, b, h, q_idx, kv_idx):\n    return score + table[q_idx, kv_idx]\n"
                      "def mask_mod(b, h, q_idx, kv_idx):\n    return table[q_idx, kv_idx] > 0\n"));
  const auto make = [&](uint8_t fill) { return Large(DType::BF16, {1, 1, kLength, kDim}, fill); };
  const Large q = make(0), k = make(0), v = make(0), dOut = make(0), table(DType::BF16, {1, 1, kLength, kLength}, 0);
  const auto cornerOf = [](const Large& tensor, int64_t first) {
    Large corner = tensor.shifted(first * (kLength + 1));
    corner.view.shape[3] = kCorner;
    return corner;
  };
  REQUIRE(table.view.elements() > kInts);

  const Problem problem{{1, 1, 1, kCorner, kCorner}, kDim, kDim, DType::BF16};
  constexpr int64_t kFirsts[] = {0, kLength - kCorner};
  std::vector<reference::GradientResult> expected;
  for (int64_t first : kFirsts) {
    Problem of = problem;
    of.seed = uint64_t(first) + 1;
    HostOperands operands = draw(mod, of);
    const ResultGradients given = drawGradients(of, /*withLse=*/false);
    const Mod derived = take(gradientMod(mod, {"table"}));
    const BackwardOperands args{{operands.q.view(), operands.k.view(), operands.v.view()}, {}, {}, given.dOut.view()};
    expected.push_back(
        take(reference::gradients(derived.module(), operands.captures, args, captureGradients(derived))));
    q.put(operands.q, 0, first);
    k.put(operands.k, 0, first);
    v.put(operands.v, 0, first);
    dOut.put(given.dOut, 0, first);
    cli::HostTensor corner = operands.tensors.at("table");
    corner.shape = {1, 1, kCorner, kCorner};
    cornerOf(table, first).put(corner, 0, 0);
  }

  const auto matrixOf = [](const Large& tensor) {
    return TensorView::contiguous(tensor.view.data, tensor.view.dtype, {kLength, kLength});
  };
  Captures captures;
  captures.set("table", matrixOf(table));
  BackwardOperands inputs{{.q = q.view, .k = k.view, .v = v.view, .captures = &captures}};
  inputs.dOut = dOut.view;
  const auto checkForward = [&](const Large& out, const Large& lse) {
    for (size_t end : {0, 1}) {
      const reference::AttentionResult& want = expected[end].forward;
      checkClose({out.get(0, kFirsts[end], kCorner), lse.get(0, kFirsts[end], kCorner), {}, {}, {}},
                 {want.out, want.lse, want.rowMax, {}, {}}, problem);
    }
  };
  for (Family family : familiesFor(mod, problem)) {
    {
      INFO(familyName(family) << ", all tiles");
      const Large out = make(0xff), lse = perRow(1, 1, kLength);
      runForward(mod, inputs, {.out = out.view, .lse = lse.view},
                 {.family = family, .decode = false, .buildBlockMask = false});
      checkForward(out, lse);
    }
    for (DType dtype : {DType::F32, DType::BF16}) {
      INFO(familyName(family) << ", by the lists of a block mask, gradient of " << dtypeName(dtype));
      const Large out = make(0xff), lse = perRow(1, 1, kLength), dQ = make(0xff), dK = make(0xff), dV = make(0xff);
      const Large dTable(dtype, {1, 1, kLength, kLength}, 0xff);
      Captures gradients;
      gradients.set("table", matrixOf(dTable));
      inputs.out = out.view;
      inputs.lse = lse.view;
      runTraining(mod, inputs, {.dQ = dQ.view, .dK = dK.view, .dV = dV.view, .captures = &gradients},
                  {.family = family});
      checkForward(out, lse);
      for (size_t end : {0, 1}) {
        const auto rowsOf = [&](const Large& tensor) { return tensor.get(0, kFirsts[end], kCorner); };
        const reference::GradientResult& want = expected[end];
        checkGradients({rowsOf(dQ), rowsOf(dK), rowsOf(dV)}, {want.dQ, want.dK, want.dV, want.scoreSlope}, problem);
        const std::vector<double> actual = cornerOf(dTable, kFirsts[end]).get(0, 0, kCorner);
        // out, and with it delta, is rounded: an element's gradient is off by that times its weight.
        reference::Comparison comparison({.absolute = 1e-3, .relative = 0x1p-7});
        for (size_t i = 0; i < actual.size(); ++i) comparison.add(actual[i], want.captures.at("table")[i]);
        INFO("max error " << comparison.maxError() << ": " << comparison.firstBadText());
        CHECK(comparison.holds());
      }
    }
  }
}
