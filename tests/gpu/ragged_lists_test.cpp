// Ragged batches with a block mask: every family against the fp64 reference, packed or in pages, with rows that a
// launch appends, in 16 and in 8 bits.
#include "gpu.h"

#include "helpers/turns.h"

#include "api/compiler_impl.h"
#include "helpers/ragged_lists.h"

using namespace attnc;
using namespace attnc::gputest;
using test::kOtherLengths;
using test::kRaggedLengths;
using test::RaggedCase;

namespace {

/// Tensors in device memory, each with the bytes and strides of a host tensor that has no gaps.
class Uploaded {
public:
  void move(TensorView& view) {
    const size_t bytes = size_t(view.elements() * dtypeBytes(view.dtype));
    buffers.push_back({take(device::Buffer::allocate(bytes)), view.data, bytes});
    if (bytes) take(buffers.back().memory.upload(view.data, bytes));
    view.data = buffers.back().memory.data();
  }
  void move(int32_t*& list, size_t elements) {
    TensorView view = TensorView::contiguous(list, DType::I32, {int64_t(elements)});
    move(view);
    list = static_cast<int32_t*>(view.data);
  }
  void download() {
    for (Buffer& buffer : buffers)
      if (buffer.bytes) take(buffer.memory.download(buffer.host, buffer.bytes));
  }

private:
  struct Buffer {
    device::Buffer memory;
    void* host;
    size_t bytes;
  };
  std::vector<Buffer> buffers;
};

/// A launch of a case: operands and results in device memory.
struct Launch {
  Mod mod;
  test::RaggedBatch batch;
  test::RaggedResults results;
  BlockMaskView lists;
  Operands operands;
  Outputs outputs;
  Uploaded uploaded;

  explicit Launch(const RaggedCase& c)
      : mod(take(Mod::parse(c.mod))), batch(c), results(c, batch.rows(), DType::BF16), lists(batch.lists.view),
        operands(batch.operands()), outputs(results.outputs()) {
    const size_t rows = batch.lists.counts[0].size(), indices = batch.lists.indices[0].size();
    for (int32_t** counts : {&lists.partialCount, &lists.fullCount}) uploaded.move(*counts, rows);
    for (int32_t** index : {&lists.partialIndex, &lists.fullIndex}) uploaded.move(*index, indices);
    if (operands.blockMask) operands.blockMask = &lists;
    for (TensorView* tensor : {&operands.q, &operands.k, &operands.v}) uploaded.move(*tensor);
    forEachOptional(operands, [&](const char*, std::optional<TensorView>& tensor, Feature) {
      if (tensor) uploaded.move(*tensor);
    });
    for (std::optional<TensorView>* tensor : {&outputs.out, &outputs.lse, &outputs.rowMax}) uploaded.move(**tensor);
  }
  Launch(const Launch&) = delete;

  /// Results are in host memory behind it.
  void run(Family family, bool wantsMax) {
    Gpu& device = *gpu();
    Outputs wanted = outputs;
    if (!wantsMax) wanted.rowMax.reset(); // then references lag behind the maxima
    const Prepared prepared = take(device.compiler.prepare(mod, operands, wanted, {.family = family}));
    const bool listsAnew = !operands.blockMask && (operands.kvLengths || operands.cuSeqlensKv);
    CHECK(prepared.preparation().kernel.kvLoop() == (listsAnew ? KvLoop::Listed : KvLoop::BlockMask));
    const device::Buffer workspace = take(device::Buffer::allocate(prepared.workspaceBytes()));
    take(prepared.initialise(operands, workspace.data(), device.stream.get()));
    take(prepared.launch(operands, wanted, workspace.data(), device.stream.get()));
    take(device.stream.synchronize());
    uploaded.download();
  }
};

bool isHopper() { return gpu()->context.info().arch == "sm_90a"; }

/// Every family that serves the case.
void check(RaggedCase c) {
  for (Family family : {Family::Naive, Family::Sm80, Family::Sm90}) {
    if (family == Family::Sm90 && (!isHopper() || c.qBlock < 128)) continue;
    if (c.dtype == DType::E4M3 && !isHopper()) continue;
    c.family = family;
    INFO(c.text());
    Launch(c).run(family, false);
    Launch launch(c);
    launch.run(family, true);
    test::checkRagged(c, launch.batch, launch.results);
  }
}

const char* const kAlibi = "def score_mod(score, b, h, q_idx, kv_idx):\n"
                           "    return score - 0.1 * (h + 1) * (q_idx - kv_idx)\n"
                           "def mask_mod(b, h, q_idx, kv_idx):\n"
                           "    return q_idx >= kv_idx\n";
/// Scores without hope, and masks by the score, which hold in full blocks.
const char* const kHopeless = "import torch\n"
                              "def score_mod(score, b, h, q_idx, kv_idx):\n"
                              "    score = torch.where(kv_idx % 5 == 2, -float('inf'), score)\n"
                              "    return torch.where(q_idx % 3 == 0, score - 1e9, score)\n"
                              "def mask_mod(b, h, q_idx, kv_idx):\n"
                              "    return (q_idx + kv_idx) % 4 != 0\n";
/// Queries of a batch over a cache, and keys, which count those of the queries.
const std::vector<int32_t> kNewRows = {1, 0, 130, 1, 7, 300}, kRowsInCache = {200, 0, 130, 3, 129, 1000};
const char* const kSoftcap = "def score_mod(score, b, h, q_idx, kv_idx):\n"
                             "    return 2.0 * tanh(score / 2.0)\n";

} // namespace

GPU_TEST_CASE("ragged batches walk the lists of a block mask, those of each sequence", "[gpu][ragged]") {
  for (const char* mod :
       {"score", "q_idx >= kv_idx", "(q_idx + 2 * kv_idx + b + h) % 3 != 0", kAlibi, kHopeless, kSoftcap})
    for (int headDim : {64, 128, 256})
      for (bool hasOwnKv : {false, true})
        if (test::isCaseDue())
          check({.qLengths = kRaggedLengths,
                 .kvLengths = hasOwnKv ? kOtherLengths : std::vector<int32_t>(),
                 .mod = mod,
                 .headDim = headDim});
}

GPU_TEST_CASE("lists of a ragged batch have blocks of any size, for all sequences or heads, or for one",
              "[gpu][ragged]") {
  for (int qBlock : {64, 128, 256})
    for (int kvBlock : {64, 128, 256})
      for (bool perSequence : {false, true})
        for (bool perHead : {false, true})
          check({.qLengths = kOtherLengths,
                 .kvLengths = kRaggedLengths,
                 .perSequence = perSequence,
                 .perHead = perHead,
                 .qBlock = qBlock,
                 .kvBlock = kvBlock});
  check({.qLengths = kRaggedLengths, .heads = 6, .kvHeads = 2, .headDim = 40});
  check({.qLengths = kRaggedLengths, .heads = 8, .kvHeads = 1, .headDim = 192});
  check({.qLengths = {0, 0, 1}});
  check({.qLengths = {1000}});
  check({.qLengths = {1000, 0, 3}, .kvLengths = {0, 500, 2000}, .mod = kAlibi, .headDim = 128});
}

static void checkPages(DType dtype) {
  ATTNC_NEED_GPU();
  for (const char* mod : {"q_idx >= kv_idx", "(q_idx + 2 * kv_idx + b + h) % 3 != 0", kAlibi, kHopeless})
    for (int64_t pageSize : {8, 16, 64, 256})
      for (bool appends : {false, true})
        for (int headDim : {64, 128})
          if (test::isCaseDue())
            check({.qLengths = kNewRows,
                   .kvLengths = kRowsInCache,
                   .mod = mod,
                   .headDim = headDim,
                   .dtype = dtype,
                   .pageSize = pageSize,
                   .appends = appends});
}
TEST_CASE("lists of a ragged batch are of positions in pages, to which new rows are appended", "[gpu][ragged]") {
  checkPages(DType::BF16);
}
TEST_CASE("lists of a ragged batch of e4m3 are of positions in pages, to which new rows are appended",
          "[gpu][ragged]") {
  checkPages(DType::E4M3);
}

GPU_TEST_CASE("a block mask is built for a ragged batch whose mask has no bounds", "[gpu][ragged]") {
  for (DType dtype : {DType::BF16, DType::E4M3})
    for (const char* mod :
         {"(q_idx // 128 + 2 * kv_idx // 64 + b + h) % 3 != 0", "(q_idx + kv_idx) % 3 != 0", kHopeless})
      for (int headDim : {64, 128})
        if (test::isCaseDue())
          check({.qLengths = {200, 130, 257, 129, 256},
                 .mod = mod,
                 .headDim = headDim,
                 .dtype = dtype,
                 .hasLists = false});
}

GPU_TEST_CASE("each launch lists the blocks of queries with offsets", "[gpu][ragged]") {
  int number = 0;
  for (DType dtype : {DType::BF16, DType::E4M3})
    for (const char* mod : {"(q_idx >= kv_idx) & ((kv_idx < 4) | (q_idx - kv_idx < 150))",
                            "(q_idx // 128 + 2 * kv_idx // 64 + b + h) % 3 != 0", kHopeless}) {
      DYNAMIC_SECTION("case " << number++) {
        for (auto [pageSize, headDim] : {std::pair(0, 128), {16, 64}, {64, 128}})
          if (test::isCaseDue())
            check({.qLengths = kNewRows,
                   .kvLengths = kRowsInCache,
                   .mod = mod,
                   .headDim = headDim,
                   .dtype = dtype,
                   .pageSize = pageSize,
                   .appends = pageSize == 64,
                   .hasLists = false});
      }
    }
}

GPU_TEST_CASE("ragged batches of e4m3 walk lists", "[gpu][ragged]") {
  for (const char* mod : {"score", "q_idx >= kv_idx", "(q_idx + 2 * kv_idx + b + h) % 3 != 0", kSoftcap})
    for (int headDim : {64, 128, 256})
      if (test::isCaseDue())
        check({.qLengths = kRaggedLengths,
               .kvLengths = kOtherLengths,
               .mod = mod,
               .headDim = headDim,
               .dtype = DType::E4M3});
}

GPU_TEST_CASE("backward kernels walk the lists of a ragged batch", "[gpu][ragged][backward]") {
  for (Family family : {Family::Naive, Family::Sm80, Family::Sm90})
    for (auto [headDim, deterministic, perSequence, hasLists] : {std::tuple(64, false, true, true),
                                                                 {128, true, true, true},
                                                                 {64, true, false, true},
                                                                 {256, false, true, true},
                                                                 {64, true, false, false},
                                                                 {128, false, false, false}}) {
      if (family == Family::Sm90 && !isHopper()) continue;
      RaggedCase c{.family = family, .qLengths = kRaggedLengths, .headDim = headDim};
      c.perSequence = perSequence, c.hasLists = hasLists;
      if (hasLists)
        c.kvLengths = kOtherLengths;
      else { // then both passes walk lists that are built, of sequences of like lengths
        c.qLengths = {150, 129, 200, 64};
        c.mod = "(q_idx // 128 + 2 * kv_idx // 64 + b + h) % 3 != 0";
      }
      INFO(c.text() << ", deterministic " << deterministic);
      test::RaggedBatch batch(c);
      const test::RaggedGradients got(c, batch), want(c, batch);
      want.compute(c, batch);
      Uploaded uploaded;
      BackwardOperands operands = got.operands(batch);
      BackwardOutputs gradients = got.outputs();
      BlockMaskView lists = got.view;
      const BlockMaskShape& shape = lists.shape;
      const auto moveLists = [&](auto& of, int64_t blocks) {
        const auto rows = size_t(shape.batch * shape.heads * blocks);
        for (int32_t** counts : {&of.partialCount, &of.fullCount}) uploaded.move(*counts, rows);
        for (int32_t** index : {&of.partialIndex, &of.fullIndex}) uploaded.move(*index, rows * size_t(of.indexStride));
      };
      moveLists(lists, shape.qBlocks());
      moveLists(lists.columns, shape.kvBlocks());
      if (hasLists) operands.blockMask = &lists;
      for (TensorView* tensor : {&operands.q, &operands.k, &operands.v, &operands.out, &operands.lse, &operands.dOut,
                                 &*operands.cuSeqlensQ, &*gradients.dQ, &*gradients.dK, &*gradients.dV})
        uploaded.move(*tensor);
      if (operands.cuSeqlensKv) uploaded.move(*operands.cuSeqlensKv);
      Gpu& device = *gpu();
      const Outputs outputs{.out = operands.out, .lse = operands.lse};
      const Prepared prepared = take(device.compiler.prepareTraining(
          take(Mod::parse(c.mod)), operands, outputs, gradients, {.family = family, .deterministic = deterministic}));
      CHECK(prepared.preparation().blockMask.has_value() == !hasLists);
      const device::Buffer workspace = take(device::Buffer::allocate(prepared.workspaceBytes()));
      take(prepared.initialise(operands, workspace.data(), device.stream.get()));
      take(prepared.launch(operands, outputs, workspace.data(), device.stream.get()));
      take(prepared.launchBackward(operands, gradients, workspace.data(), device.stream.get()));
      take(device.stream.synchronize());
      uploaded.download();
      test::checkGradients(batch, got, want, 4e-2);
    }
}
