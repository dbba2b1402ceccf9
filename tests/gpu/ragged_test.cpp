// Ragged batches: sequences that lie one behind the other, every family against the fp64 reference, with NaN in the
// rows of other sequences and in rows of none.
#include "gpu.h"

#include "helpers/turns.h"

#include "api/compiler_impl.h"
#include "api/mod_impl.h"
#include "gradient_tolerance.h"
#include "reference/compare.h"
#include "reference/gradients.h"
#include "support/element.h"
#include "tools/attnc/problem/random.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace attnc;
using namespace attnc::gputest;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int32_t kBefore = 3, kBehind = 5; ///< rows of no sequence, before the first one and behind the last one

/// Lengths of sequences, and what else makes a batch.
struct Batch {
  std::vector<int32_t> qLengths, kvLengths; ///< kvLengths empty: those of q, and one tensor for both
  int64_t heads = 4, kvHeads = 2;
  int headDim = 64;
  DType dtype = DType::BF16;
  bool tellsLongest = true;

  std::string text() const {
    std::string text = "lengths";
    for (int32_t length : qLengths) text += " " + std::to_string(length);
    return text + ", heads " + std::to_string(heads) + ":" + std::to_string(kvHeads) + ", d" + std::to_string(headDim);
  }
};

std::vector<int32_t> cumulative(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> starts{kBefore};
  for (int32_t length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

int64_t longest(const std::vector<int32_t>& lengths) { return *std::max_element(lengths.begin(), lengths.end()); }

/// [total, H, D] as [1, H, total, D].
TensorView headsFirst(TensorView memory) {
  TensorView view{.data = memory.data, .dtype = memory.dtype, .rank = 4};
  const int64_t rows = memory.shape[0], heads = memory.shape[1], columns = memory.shape[2];
  view.shape = {1, heads, rows, columns};
  view.stride = {rows * heads * columns, columns, heads * columns, 1};
  return view;
}

device::Buffer uploaded(const void* data, size_t bytes) {
  device::Buffer buffer = take(device::Buffer::allocate(bytes));
  if (bytes) take(buffer.upload(data, bytes));
  return buffer;
}

/// A tensor in host and in device memory.
struct Tensor {
  cli::HostTensor host;
  device::Buffer buffer;

  void upload() { buffer = uploaded(host.bytes.data(), host.bytes.size()); }
  void poison() {
    if (host.bytes.empty()) return;
    if (!buffer.data()) upload();
    take(buffer.fill(0xff));
  }
  void download() { take(buffer.download(host.bytes.data(), host.bytes.size())); }
  TensorView onDevice() const {
    TensorView view = host.view();
    view.data = buffer.data();
    return view;
  }
};

/// Rows of sequence b become NaN.
void poisonRows(cli::HostTensor& tensor, int32_t begin, int32_t end) {
  const int64_t columns = tensor.shape[1] * tensor.shape[2];
  for (int64_t i = begin * columns; i < end * columns; ++i) writeElement(tensor.bytes.data(), tensor.dtype, i, kNan);
}

/// A problem, its operands and results.
class RaggedWork {
public:
  RaggedWork(const Mod& mod, const Batch& batch, std::optional<QueryOffsets> offsets = {})
      : mod(mod), batch(batch), offsets(offsets), starts(cumulative(batch.qLengths)),
        kvStarts(cumulative(batch.kvLengths.empty() ? batch.qLengths : batch.kvLengths)) {
    const int64_t rows = starts.back() + kBehind, kvRows = kvStarts.back() + kBehind;
    const std::vector<int32_t>& kvLengths = batch.kvLengths.empty() ? batch.qLengths : batch.kvLengths;
    shape = {int64_t(batch.qLengths.size()), batch.heads, batch.kvHeads,
             batch.tellsLongest ? longest(batch.qLengths) : rows, batch.tellsLongest ? longest(kvLengths) : kvRows};
    Problem small{shape, 8, 8, batch.dtype}; // only for the captures
    HostOperands drawn = draw(mod, small);
    captured = std::move(drawn.tensors);
    captures = std::move(drawn.captures);
    for (auto& [name, tensor] : captured) captures.set(name, tensor.view());
    cli::Generator generator(7, shape, int64_t(1) << 30);
    q.host = generator.normal(batch.dtype, {rows, batch.heads, batch.headDim});
    k.host = generator.normal(batch.dtype, {kvRows, batch.kvHeads, batch.headDim});
    v.host = generator.normal(batch.dtype, {kvRows, batch.kvHeads, batch.headDim});
    dOut.host = generator.normal(batch.dtype, {rows, batch.heads, batch.headDim});
    dLse.host = generator.normal(DType::F32, {1, batch.heads, rows});
    out.host = dQ.host = cli::HostTensor::make(batch.dtype, q.host.shape);
    dK.host = dV.host = cli::HostTensor::make(batch.dtype, k.host.shape);
    lse.host = rowMax.host = cli::HostTensor::make(DType::F32, {1, batch.heads, rows});
  }

  void addSequences(Operands& operands, void* ofQ, void* ofKv) const {
    const int64_t count = shape.batch + 1;
    operands.cuSeqlensQ = TensorView::contiguous(ofQ, DType::I32, {count});
    if (!batch.kvLengths.empty()) operands.cuSeqlensKv = TensorView::contiguous(ofKv, DType::I32, {count});
    if (batch.tellsLongest) operands.maxQLen = shape.qLen, operands.maxKvLen = shape.kvLen;
  }

  /// Runs the reference on what is now in host memory.
  reference::GradientResult expected(bool withGradients, const std::set<std::string>& ofCaptures = {}) const {
    BackwardOperands args{{headsFirst(q.host.view()), headsFirst(k.host.view()), headsFirst(v.host.view())},
                          {},
                          {},
                          headsFirst(dOut.host.view()),
                          dLse.host.view()};
    addSequences(args, const_cast<int32_t*>(starts.data()), const_cast<int32_t*>(kvStarts.data()));
    const passes::SequenceForm form = sequenceForm(args, {.offsets = offsets});
    const Mod whole = take(sequencesMod(mod, form, {}));
    if (withGradients) {
      const Mod derived = take(gradientMod(whole, ofCaptures));
      return take(reference::gradients(derived.module(), captures, args, captureGradients(derived)));
    }
    reference::GradientResult result;
    result.forward = take(reference::attention(whole.module(), captures, args));
    return result;
  }

  void upload() {
    for (Tensor* tensor : {&q, &k, &v, &dOut, &dLse}) tensor->upload();
    onDevice = uploadCaptures(captures);
    cuQ = uploaded(starts.data(), starts.size() * 4);
    cuKv = uploaded(kvStarts.data(), kvStarts.size() * 4);
    poisonResults();
  }
  void poisonResults() {
    for (Tensor* tensor : {&out, &lse, &rowMax, &dQ, &dK, &dV}) tensor->poison();
  }
  void download() {
    for (Tensor* tensor : {&out, &lse, &rowMax, &dQ, &dK, &dV}) tensor->download();
  }

  BackwardOperands inputs() const {
    BackwardOperands inputs{
        {.q = headsFirst(q.onDevice()), .k = headsFirst(k.onDevice()), .v = headsFirst(v.onDevice())}};
    addSequences(inputs, cuQ.data(), cuKv.data());
    inputs.captures = &onDevice.captures;
    inputs.out = headsFirst(out.onDevice());
    inputs.lse = lse.onDevice();
    inputs.dOut = headsFirst(dOut.onDevice());
    inputs.dLse = dLse.onDevice();
    return inputs;
  }
  Outputs outputs() const {
    return {.out = headsFirst(out.onDevice()), .lse = lse.onDevice(), .rowMax = rowMax.onDevice()};
  }
  BackwardOutputs gradients() const {
    return {.dQ = headsFirst(dQ.onDevice()),
            .dK = headsFirst(dK.onDevice()),
            .dV = headsFirst(dV.onDevice()),
            .captures = &gradientsOfCaptures};
  }
  PrepareOptions options(Family family) const { return {.family = family, .offsets = offsets}; }

  /// Both passes, or the forward one. Results are in host memory behind it.
  void run(Family family, bool trains, PrepareOptions options) {
    options.family = family;
    Gpu& device = *gpu();
    Outputs results = outputs();
    if (trains) results.rowMax.reset();
    const Prepared prepared =
        take(trains ? device.compiler.prepareTraining(mod, inputs(), results, gradients(), options)
                    : device.compiler.prepare(mod, inputs(), results, options));
    device::Buffer workspace = take(device::Buffer::allocate(prepared.workspaceBytes()));
    if (workspace.bytes()) take(workspace.fill(0xff));
    take(prepared.initialise(inputs(), workspace.data(), device.stream.get()));
    take(prepared.launch(inputs(), results, workspace.data(), device.stream.get()));
    if (trains) take(prepared.launchBackward(inputs(), gradients(), workspace.data(), device.stream.get()));
    take(device.stream.synchronize());
    download();
  }

  /// Elements of `tensor` [rows, H, D] or [1, H, rows], in the order of the reference, of the rows of these sequences.
  template <class Value>
  static std::vector<double> pick(int64_t heads, int64_t columns, const std::vector<int32_t>& starts,
                                  const std::vector<bool>& picked, Value value) {
    std::vector<double> values;
    for (int64_t h = 0; h < heads; ++h)
      for (size_t b = 0; b + 1 < starts.size(); ++b)
        for (int64_t row = starts[b]; picked[b] && row < starts[b + 1]; ++row)
          for (int64_t i = 0; i < columns; ++i) values.push_back(value(h, row, i));
    return values;
  }
  std::vector<double> actual(const cli::HostTensor& tensor, const std::vector<int32_t>& starts,
                             const std::vector<bool>& picked) const {
    const int64_t heads = tensor.shape[1], columns = tensor.shape[2];
    return pick(heads, columns, starts, picked, [&](int64_t h, int64_t row, int64_t i) {
      return readElement(tensor.bytes.data(), tensor.dtype, (row * heads + h) * columns + i).real;
    });
  }
  static std::vector<double> wanted(const std::vector<double>& dense, int64_t heads, int64_t columns,
                                    const std::vector<int32_t>& starts, const std::vector<bool>& picked) {
    const int64_t rows = int64_t(dense.size()) / (heads * columns);
    return pick(heads, columns, starts, picked,
                [&](int64_t h, int64_t row, int64_t i) { return dense[size_t((h * rows + row) * columns + i)]; });
  }
  std::vector<double> rowsOf(const cli::HostTensor& tensor, const std::vector<bool>& picked) const {
    return wanted(toDoubles(tensor), batch.heads, 1, starts, picked);
  }

  void checkForward(const reference::AttentionResult& want, const std::vector<bool>& picked,
                    bool withMax = true) const {
    const Outcome got{actual(out.host, starts, picked), rowsOf(lse.host, picked),
                      withMax ? rowsOf(rowMax.host, picked) : std::vector<double>()};
    const Outcome expected{wanted(want.out, batch.heads, batch.headDim, starts, picked),
                           wanted(want.lse, batch.heads, 1, starts, picked),
                           wanted(want.rowMax, batch.heads, 1, starts, picked)};
    checkClose(got, expected, {shape, batch.headDim, batch.headDim, batch.dtype}, false, 1e-3);
  }
  void checkBackward(const reference::GradientResult& want, const std::vector<bool>& picked) const {
    const Gradients got{actual(dQ.host, starts, picked), actual(dK.host, kvStarts, picked),
                        actual(dV.host, kvStarts, picked)};
    const Gradients expected{wanted(want.dQ, batch.heads, batch.headDim, starts, picked),
                             wanted(want.dK, batch.kvHeads, batch.headDim, kvStarts, picked),
                             wanted(want.dV, batch.kvHeads, batch.headDim, kvStarts, picked), want.scoreSlope};
    gputest::checkGradients(got, expected, {shape, batch.headDim, batch.headDim, batch.dtype});
  }
  /// Rows of no sequence are as they were: all bits set.
  void checkUntouched(const cli::HostTensor& tensor, const std::vector<int32_t>& starts) const {
    const size_t rowBytes = tensor.bytes.size() / size_t(tensor.shape[0]);
    const auto isUntouched = [&](int32_t row) {
      const auto at = tensor.bytes.begin() + std::ptrdiff_t(size_t(row) * rowBytes);
      return std::all_of(at, at + std::ptrdiff_t(rowBytes), [](auto byte) { return uint8_t(byte) == 0xff; });
    };
    for (int32_t row = 0; row < kBefore; ++row) CHECK(isUntouched(row));
    for (int32_t row = starts.back(); row < starts.back() + kBehind; ++row) CHECK(isUntouched(row));
  }

  const Mod& mod;
  Batch batch;
  std::optional<QueryOffsets> offsets;
  std::vector<int32_t> starts, kvStarts;
  ProblemShape shape;
  cli::NamedTensors captured;
  Captures captures;
  Tensor q, k, v, dOut, dLse, out, lse, rowMax, dQ, dK, dV;
  device::Buffer cuQ, cuKv;
  DeviceCaptures onDevice;
  Captures gradientsOfCaptures; ///< where they go, on the device
};

std::vector<Family> families(const Mod& mod, const Batch& batch) {
  return familiesFor(mod, {{1, batch.heads, batch.kvHeads, 1, 1}, batch.headDim, batch.headDim, batch.dtype});
}

/// Every family; all sequences, then with NaN in all rows of every other one, and in those of none.
void checkFamilies(const std::string& name, const Batch& batch, bool trains, std::optional<QueryOffsets> offsets = {},
                   bool decodes = false) {
  const Mod mod = libraryMod(name);
  RaggedWork work(mod, batch, offsets);
  const size_t count = batch.qLengths.size();
  const reference::GradientResult want = work.expected(trains);
  for (cli::HostTensor* tensor : {&work.q.host, &work.dOut.host}) {
    poisonRows(*tensor, 0, kBefore);
    poisonRows(*tensor, work.starts.back(), work.starts.back() + kBehind);
  }
  for (cli::HostTensor* tensor : {&work.k.host, &work.v.host}) {
    poisonRows(*tensor, 0, kBefore);
    poisonRows(*tensor, work.kvStarts.back(), work.kvStarts.back() + kBehind);
  }
  std::vector<bool> picked(count, true);
  for (bool others : {false, true}) {
    if (others)
      for (size_t b = 1; b < count; b += 2) {
        picked[b] = false;
        for (cli::HostTensor* tensor : {&work.q.host, &work.dOut.host})
          poisonRows(*tensor, work.starts[b], work.starts[b + 1]);
        for (cli::HostTensor* tensor : {&work.k.host, &work.v.host})
          poisonRows(*tensor, work.kvStarts[b], work.kvStarts[b + 1]);
      }
    work.upload();
    for (Family family : decodes ? std::vector{Family::Auto, Family::Sm80} : families(mod, batch)) {
      INFO(name << ", " << batch.text() << ", family " << int(family) << (others ? ", NaN in others" : ""));
      work.poisonResults();
      work.run(family, trains, {.offsets = offsets, .decode = trains ? std::optional<bool>() : decodes});
      work.checkForward(want.forward, picked, !trains);
      work.checkUntouched(work.out.host, work.starts);
      if (!trains) continue;
      work.checkBackward(want, picked);
      work.checkUntouched(work.dQ.host, work.starts);
      work.checkUntouched(work.dK.host, work.kvStarts);
      work.checkUntouched(work.dV.host, work.kvStarts);
    }
  }
}

/// None, one, odd ones, around the edges of tiles, and more than a tile.
const std::vector<int32_t> kLengths = {5, 0, 1, 64, 63, 0, 65, 127, 128, 129, 300, 192, 0};
const std::vector<int32_t> kOtherLengths = {7, 3, 0, 64, 200, 0, 65, 1, 129, 128, 17, 250, 9};

} // namespace

GPU_TEST_CASE("every library mod serves ragged batches", "[gpu][ragged]") {
  for (const std::string& name : libraryNames())
    for (int headDim : {64, 128})
      if (test::isCaseDue()) checkFamilies(name, {.qLengths = kLengths, .headDim = headDim}, false);
}

GPU_TEST_CASE("lengths of q and of keys differ in a ragged batch", "[gpu][ragged]") {
  for (const char* name : {"noop", "causal", "alibi", "sliding_window", "document"})
    for (QueryOffsets offsets : {QueryOffsets::FromLengths, QueryOffsets::None}) {
      checkFamilies(name, {.qLengths = kLengths, .kvLengths = kOtherLengths, .headDim = 128}, false, offsets);
      checkFamilies(name, {.qLengths = kOtherLengths, .kvLengths = kLengths, .headDim = 64}, false, offsets);
    }
}

GPU_TEST_CASE("ragged batches with any ratio of heads, wide heads and fp32", "[gpu][ragged]") {
  for (const char* name : {"noop", "causal", "softcap"}) {
    checkFamilies(name, {.qLengths = kLengths, .heads = 6, .kvHeads = 2, .headDim = 128}, false);
    checkFamilies(name, {.qLengths = kLengths, .heads = 8, .kvHeads = 1, .headDim = 64, .tellsLongest = false}, false);
    checkFamilies(name, {.qLengths = kLengths, .headDim = 256}, false);
    checkFamilies(name, {.qLengths = kLengths, .headDim = 40, .dtype = DType::F32}, false);
    checkFamilies(name, {.qLengths = {0, 0, 0}}, false);
    checkFamilies(name, {.qLengths = {1000}}, false);
  }
}

GPU_TEST_CASE("decode kernels serve ragged batches", "[gpu][ragged]") {
  const std::vector<int32_t> tokens = {1, 1, 0, 2, 7, 1, 0, 16, 1, 3};
  const std::vector<int32_t> keys = {700, 0, 33, 64, 1000, 1, 0, 129, 3000, 65};
  for (const std::string& name : libraryNames())
    if (test::isCaseDue())
      checkFamilies(name, {.qLengths = tokens, .kvLengths = keys, .heads = 8, .kvHeads = 2, .headDim = 128}, false, {},
                    true);
  for (const char* name : {"noop", "causal", "alibi"})
    for (int64_t kvHeads : {1, 2, 6}) {
      if (test::isCaseDue())
        checkFamilies(name,
                      {.qLengths = tokens, .kvLengths = keys, .heads = 6, .kvHeads = kvHeads, .tellsLongest = false},
                      false, {}, true);
      if (test::isCaseDue())
        checkFamilies(name, {.qLengths = kLengths, .kvLengths = kOtherLengths, .heads = 6, .kvHeads = kvHeads}, false,
                      QueryOffsets::None, true);
    }
  if (test::isCaseDue()) checkFamilies("causal", {.qLengths = {0, 0}, .kvLengths = {5, 0}}, false, {}, true);
}

GPU_TEST_CASE("every library mod has gradients for ragged batches", "[gpu][ragged]") {
  for (const std::string& name : libraryNames())
    for (int headDim : {64, 128})
      if (test::isCaseDue()) checkFamilies(name, {.qLengths = kLengths, .headDim = headDim}, true);
}

GPU_TEST_CASE("gradients of ragged batches whose queries and keys differ in number", "[gpu][ragged]") {
  for (const char* name : {"noop", "causal", "alibi", "sliding_window", "document", "softcap"})
    for (QueryOffsets offsets : {QueryOffsets::FromLengths, QueryOffsets::None}) {
      if (test::isCaseDue())
        checkFamilies(name, {.qLengths = kLengths, .kvLengths = kOtherLengths, .headDim = 128}, true, offsets);
      if (test::isCaseDue())
        checkFamilies(name, {.qLengths = kOtherLengths, .kvLengths = kLengths, .headDim = 64}, true, offsets);
    }
}

GPU_TEST_CASE("gradients of ragged batches with any ratio of heads, wide heads and fp32", "[gpu][ragged]") {
  for (const char* name : {"noop", "causal", "softcap"}) {
    checkFamilies(name, {.qLengths = kLengths, .heads = 6, .kvHeads = 2, .headDim = 128}, true);
    checkFamilies(name, {.qLengths = kLengths, .heads = 8, .kvHeads = 1, .headDim = 64, .tellsLongest = false}, true);
    checkFamilies(name, {.qLengths = kLengths, .headDim = 256}, true);
    checkFamilies(name, {.qLengths = kLengths, .headDim = 40, .dtype = DType::F32}, true);
    checkFamilies(name, {.qLengths = {0, 0, 0}}, true);
    checkFamilies(name, {.qLengths = {1000}}, true);
  }
}

GPU_TEST_CASE("gradients of captures add up over the sequences of a ragged batch", "[gpu][ragged]") {
  const std::pair<const char*, const char*> kCaptures[] = {
      {"alibi", "slopes"}, {"learned_bias", "bias"}, {"relative_bias", "bias"}, {"softcap", "cap"}};
  for (auto [name, capture] : kCaptures)
    for (bool deterministic : {false, true}) {
      const Mod mod = libraryMod(name);
      const auto isNamed = [&, capture = capture](const CaptureInfo& info) { return info.name == capture; };
      REQUIRE(std::any_of(mod.captures().begin(), mod.captures().end(), isNamed));
      RaggedWork work(mod, {.qLengths = kLengths, .kvLengths = kOtherLengths, .headDim = 64});
      const reference::GradientResult want = work.expected(true, {capture});
      const std::vector<double>& expected = want.captures.at(capture);
      work.upload();
      const auto found = work.captured.find(capture);
      cli::HostTensor host = cli::HostTensor::make(DType::F32, found == work.captured.end() ? std::vector<int64_t>()
                                                                                            : found->second.shape);
      device::Buffer buffer = take(device::Buffer::allocate(host.bytes.size()));
      TensorView view = host.view();
      view.data = buffer.data();
      work.gradientsOfCaptures.set(capture, view);
      const reference::GradientTolerance tolerance(
          {.dtype = work.batch.dtype, .scale = 1 / std::sqrt(64.0), .headDimV = 64, .dLse = 1});
      for (Family family : families(mod, work.batch)) {
        INFO(name << ", family " << int(family) << (deterministic ? ", deterministic" : ""));
        take(buffer.fill(0xff));
        work.poisonResults();
        work.run(family, true, {.deterministic = deterministic});
        work.checkBackward(want, std::vector<bool>(kLengths.size(), true));
        take(buffer.download(host.bytes.data(), host.bytes.size()));
        reference::Comparison comparison(tolerance.capture(expected, want.captureSquares.at(capture), DType::F32));
        const std::vector<double> got = toDoubles(host);
        for (size_t i = 0; i < got.size(); ++i) comparison.add(got[i], expected[i]);
        INFO(comparison.firstBadText() << ", max error " << comparison.maxError());
        CHECK(comparison.holds());
      }
    }
}

GPU_TEST_CASE("deterministic gradients of a ragged batch are equal bits, launch after launch", "[gpu][ragged]") {
  const Mod mod = libraryMod("causal");
  for (int headDim : {64, 128}) {
    RaggedWork work(mod, {.qLengths = kLengths, .headDim = headDim});
    const reference::GradientResult want = work.expected(true);
    work.upload();
    for (Family family : families(mod, work.batch)) {
      INFO("family " << int(family));
      work.run(family, true, {.deterministic = true});
      work.checkBackward(want, std::vector<bool>(kLengths.size(), true));
      const cli::HostTensor first = work.dQ.host;
      work.poisonResults();
      work.run(family, true, {.deterministic = true});
      CHECK(work.dQ.host.bytes == first.bytes);
    }
  }
}

GPU_TEST_CASE("a graph captured once serves other cumulative lengths, with equal bits", "[gpu][ragged]") {
  Gpu& device = *gpu();
  const Mod mod = libraryMod("causal");
  RaggedWork work(mod, {.qLengths = kLengths, .headDim = 128, .tellsLongest = false});
  work.upload();
  for (Family family : families(mod, work.batch)) {
    const Prepared prepared =
        take(device.compiler.prepare(mod, work.inputs(), work.outputs(), {.family = family, .decode = false}));
    const device::Buffer workspace = take(device::Buffer::allocate(prepared.workspaceBytes()));
    take(prepared.initialise(work.inputs(), workspace.data(), device.stream.get()));
    take(device.stream.beginCapture());
    take(prepared.launch(work.inputs(), work.outputs(), workspace.data(), device.stream.get()));
    const device::Graph graph = take(device.stream.endCapture());
    for (int round = 0; round < 4; ++round) {
      INFO("family " << int(family) << ", round " << round);
      std::vector<int32_t> lengths = kLengths;
      std::rotate(lengths.begin(), lengths.begin() + 3 * round, lengths.end());
      work.starts = work.kvStarts = cumulative(lengths);
      take(work.cuQ.upload(work.starts.data(), work.starts.size() * 4));
      work.poisonResults();
      take(graph.launch(device.stream.get()));
      take(device.stream.synchronize());
      work.download();
      work.checkForward(work.expected(false).forward, std::vector<bool>(lengths.size(), true));
      const cli::HostTensor replayed = work.out.host;
      work.poisonResults();
      take(prepared.launch(work.inputs(), work.outputs(), workspace.data(), device.stream.get()));
      take(device.stream.synchronize());
      work.download();
      CHECK(work.out.host.bytes == replayed.bytes);
    }
  }
}
