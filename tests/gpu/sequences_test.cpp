// KV lengths and positions of queries, sequence by sequence: every family against the fp64 reference, with NaN in the
// rows of K and V that no sequence has.
#include "gpu.h"

#include "support/element.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace attnc;
using namespace attnc::gputest;

namespace {

constexpr int64_t kKvLen = 200;
/// Around the edges of tiles of 16, 32, 64, none and all.
const std::vector<int32_t> kLengths = {0, 1, 63, 64, 65, int32_t(kKvLen)};
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// NaN in rows of k and v behind each sequence.
void poison(HostOperands& operands) {
  for (cli::HostTensor* tensor : {&operands.k, &operands.v}) {
    const int64_t heads = tensor->shape[1], rows = tensor->shape[2], columns = tensor->shape[3];
    for (int64_t b = 0; b < tensor->shape[0]; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = operands.kvLengths[size_t(b)] * columns; i < rows * columns; ++i)
          writeElement(tensor->bytes.data(), tensor->dtype, (b * heads + h) * rows * columns + i, kNan);
  }
}

Problem problemOf(int64_t qLen, int headDim, DType dtype, int64_t kvLen = kKvLen) {
  Problem problem{{int64_t(kLengths.size()), 4, 2, qLen, kvLen}, headDim, headDim, dtype};
  problem.seed = uint64_t(qLen);
  return problem;
}

/// All families, with the lengths given and NaN behind them.
void checkFamilies(const std::string& name, const Problem& problem, std::optional<QueryOffsets> offsets,
                   std::vector<int32_t> qOffsets = {}, bool blockMask = false) {
  const Mod mod = libraryMod(name);
  if (blockMask && !mod.hasMaskMod()) return;
  HostOperands operands = draw(mod, problem);
  operands.kvLengths = kLengths;
  operands.qOffsets = std::move(qOffsets);
  const Outcome expected = [&] {
    HostOperands clean = draw(mod, problem);
    clean.kvLengths = operands.kvLengths;
    clean.qOffsets = operands.qOffsets;
    return runReference(mod, problem, clean, {}, offsets);
  }();
  poison(operands);
  for (Family family : familiesFor(mod, problem, {.blockMask = blockMask})) {
    INFO(name << ", " << problem.text() << ", family " << int(family) << (blockMask ? ", lists" : ""));
    const Outcome outcome =
        runKernel(mod, problem, operands, {.family = family, .blockMask = blockMask, .offsets = offsets});
    checkClose(outcome, expected, problem, false, scoreErrorOf(name, problem.shape, problem.dtype));
    const int64_t rows = problem.shape.qHeads * problem.shape.qLen; // of the first sequence, which has no keys
    CHECK(std::all_of(outcome.lse.begin(), outcome.lse.begin() + rows,
                      [](double lse) { return lse == -std::numeric_limits<double>::infinity(); }));
    CHECK(std::all_of(outcome.out.begin(), outcome.out.begin() + rows * problem.headDimV,
                      [](double out) { return out == 0; }));
  }
}

/// In parallel, what checkFamilies() runs.
void compileMods(int headDim, DType dtype, QueryOffsets offsets, bool blockMask = false) {
  const Problem problem = problemOf(1, headDim, dtype);
  std::vector<std::pair<Mod, KernelOptions>> jobs;
  for (const std::string& name : libraryNames()) {
    const Mod mod = libraryMod(name);
    for (Family family : familiesFor(mod, problem, {.blockMask = blockMask})) {
      KernelOptions options = kernelOptions(mod, problem, {.family = family, .blockMask = blockMask});
      options.features.set(Feature::Lengths);
      options.offsets = offsets;
      jobs.emplace_back(mod, options);
    }
  }
  compileAhead(jobs);
}

} // namespace

GPU_TEST_CASE("every library mod serves sequences of every length, the last query at the last key", "[gpu]") {
  for (int headDim : {64, 128}) {
    compileMods(headDim, DType::BF16, QueryOffsets::FromLengths);
    for (const std::string& name : libraryNames())
      for (int64_t qLen : {1, 17, 130}) checkFamilies(name, problemOf(qLen, headDim, DType::BF16), std::nullopt);
  }
}

GPU_TEST_CASE("every library mod serves sequences whose queries stand anywhere", "[gpu]") {
  compileMods(64, DType::F16, QueryOffsets::Tensor);
  for (const std::string& name : libraryNames())
    for (int64_t qLen : {1, 17, 130})
      checkFamilies(name, problemOf(qLen, 64, DType::F16), std::nullopt, {0, 70, -5, 63, 190, 1000});
}

GPU_TEST_CASE("lengths alone leave queries at their rows, with lists and without", "[gpu]") {
  for (bool blockMask : {false, true}) {
    compileMods(64, DType::BF16, QueryOffsets::None, blockMask);
    for (const std::string& name : libraryNames())
      checkFamilies(name, problemOf(130, 64, DType::BF16), QueryOffsets::None, {}, blockMask);
  }
}

GPU_TEST_CASE("lengths and offsets hold for fp32, for wide heads, and for three consumers' tiles", "[gpu]") {
  for (const char* name : {"noop", "causal", "alibi", "document", "learned_bias"}) {
    checkFamilies(name, problemOf(130, 64, DType::F32), std::nullopt);
    checkFamilies(name, problemOf(130, 256, DType::BF16), std::nullopt);
    checkFamilies(name, problemOf(200, 64, DType::BF16), std::nullopt);
  }
}

GPU_TEST_CASE("lengths are kept within the cache, and lie anywhere in memory", "[gpu]") {
  const Mod mod = libraryMod("causal");
  Problem problem = problemOf(17, 64, DType::BF16);
  problem.shape.batch = 2;
  HostOperands operands = draw(mod, problem);
  operands.kvLengths = {-7, 1 << 30};
  const Outcome expected = runReference(mod, problem, operands);
  for (Family family : familiesFor(mod, problem)) {
    INFO("family " << int(family));
    checkClose(runKernel(mod, problem, operands, {.family = family}), expected, problem);
  }
}

GPU_TEST_CASE("far positions cost a penalty by distance no accuracy", "[gpu]") {
  const Mod mod = libraryMod("alibi");
  Problem problem = problemOf(17, 64, DType::BF16);
  HostOperands operands = draw(mod, problem);
  const int32_t far = 1 << 23;
  operands.qOffsets.assign(kLengths.size(), far);
  std::vector<float> slopes(4, 0x1p-20f); // penalties of about 8, that differ by 2^-20 from key to key
  operands.captures.set("slopes", TensorView::contiguous(slopes.data(), DType::F32, {4}));
  const Outcome expected = runReference(mod, problem, operands);
  for (Family family : familiesFor(mod, problem)) {
    INFO("family " << int(family));
    checkClose(runKernel(mod, problem, operands, {.family = family}), expected, problem, false, 8 * 0x1p-22);
  }
}

GPU_TEST_CASE("a graph captured once serves other lengths and offsets", "[gpu]") {
  Gpu& device = *gpu();
  const Mod causal = libraryMod("causal");
  // Decode kernels list what lives of the other in each launch.
  const Mod stripes = take(Mod::parse("(kv_idx % 128 < 64) & (q_idx >= kv_idx)"));
  const Problem problem = problemOf(17, 64, DType::BF16);
  const ProblemShape& s = problem.shape;
  HostOperands operands = draw(causal, problem);
  const auto upload = [](const void* data, size_t bytes) {
    device::Buffer buffer = take(device::Buffer::allocate(bytes));
    take(buffer.upload(data, bytes));
    return buffer;
  };
  const auto viewOf = [](const device::Buffer& buffer, const cli::HostTensor& like) {
    TensorView view = like.view();
    view.data = buffer.data();
    return view;
  };
  const device::Buffer q = upload(operands.q.bytes.data(), operands.q.bytes.size()),
                       k = upload(operands.k.bytes.data(), operands.k.bytes.size()),
                       v = upload(operands.v.bytes.data(), operands.v.bytes.size());
  const size_t ofBatch = kLengths.size() * 4;
  device::Buffer lengths = upload(kLengths.data(), ofBatch), offsets = upload(kLengths.data(), ofBatch);
  device::Buffer out = take(device::Buffer::allocate(operands.q.bytes.size())),
                 lse = take(device::Buffer::allocate(size_t(s.batch * s.qHeads * s.qLen) * 4));
  const TensorView numbers = TensorView::contiguous(nullptr, DType::I32, {s.batch});
  Operands inputs{.q = viewOf(q, operands.q), .k = viewOf(k, operands.k), .v = viewOf(v, operands.v)};
  inputs.kvLengths = inputs.qOffsets = numbers;
  inputs.kvLengths->data = lengths.data();
  inputs.qOffsets->data = offsets.data();
  const Outputs outputs{.out = viewOf(out, operands.q),
                        .lse = TensorView::contiguous(lse.data(), DType::F32, {s.batch, s.qHeads, s.qLen})};
  std::vector<std::pair<const Mod*, PrepareOptions>> choices{{&causal, {.decode = true}}, {&stripes, {.decode = true}}};
  for (Family family : familiesFor(causal, problem)) choices.push_back({&causal, {.family = family}});
  for (const auto& [mod, options] : choices) {
    const Prepared prepared = take(device.compiler.prepare(*mod, inputs, outputs, options));
    const device::Buffer workspace = take(device::Buffer::allocate(prepared.workspaceBytes()));
    take(prepared.initialise(inputs, workspace.data(), device.stream.get()));
    take(device.stream.beginCapture());
    take(prepared.launch(inputs, outputs, workspace.data(), device.stream.get()));
    const device::Graph graph = take(device.stream.endCapture());
    for (int round = 0; round < 5; ++round) {
      operands.kvLengths = kLengths;
      std::rotate(operands.kvLengths.begin(), operands.kvLengths.begin() + round, operands.kvLengths.end());
      operands.qOffsets.clear();
      for (int32_t length : operands.kvLengths) operands.qOffsets.push_back(length + 3 * round - 17);
      take(lengths.upload(operands.kvLengths.data(), ofBatch));
      take(offsets.upload(operands.qOffsets.data(), ofBatch));
      take(out.fill(0xff));
      take(graph.launch(device.stream.get()));
      take(device.stream.synchronize());
      Outcome outcome;
      cli::HostTensor host = cli::HostTensor::make(problem.dtype, operands.q.shape);
      take(out.download(host.bytes.data(), host.bytes.size()));
      outcome.out = toDoubles(host);
      cli::HostTensor rows = cli::HostTensor::make(DType::F32, {s.batch, s.qHeads, s.qLen});
      take(lse.download(rows.bytes.data(), rows.bytes.size()));
      outcome.lse = toDoubles(rows);
      INFO(mod->name() << ", family " << int(options.family) << ", round " << round);
      checkClose(outcome, runReference(*mod, problem, operands), problem);
    }
  }
}
