// Forward kernels of ragged batches with a block mask, run on the host: their generated text, with the parameters that
// a launch would have, on a stand-in for the GPU (host_gpu.h), against the fp64 reference.
#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "ir/bind.h"
#include "kernels/findings.h"
#include "kernels/host_stage.h"
#include "kernels/host_tensor.h"
#include "plan/tensor_maps.h"
#include "plan/workspace.h"
#include "support/ceil_div.h"
#include "templates/params_sm90.cuh"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "templates/host/forward_sm90.h"

using namespace attnc;

namespace {

using test::Tensor;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int32_t kBefore = 3, kBehind = 5; ///< rows of no sequence, before the first one and behind the last one

struct Case {
  Family family = Family::Naive;
  std::vector<int32_t> qLengths, kvLengths = {}; ///< kvLengths empty: those of q
  std::string mod = "(q_idx + 2 * kv_idx + b + h) % 3 != 0";
  int64_t heads = 4, kvHeads = 2;
  int headDim = 64;
  int64_t pageSize = 0;
  bool appends = false;
  bool perSequence = true, perHead = true; ///< whether lists differ
  int qBlock = 128, kvBlock = 128;
  std::string tile = {};
};

/// Lists of a block mask, each block in none of them, in those of partial or in those of full blocks.
struct Lists {
  std::vector<int32_t> counts[2], indices[2];
  BlockMaskView view;

  Lists(const BlockMaskShape& shape, std::mt19937& random) {
    const int64_t rows = shape.batch * shape.heads * shape.qBlocks(), stride = shape.kvBlocks() + 1;
    for (int kind : {0, 1}) {
      counts[kind].assign(size_t(rows), 0);
      indices[kind].assign(size_t(rows * stride), 1 << 30); // behind a count, no block
    }
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t block = 0; block < shape.kvBlocks(); ++block)
        if (const unsigned kind = unsigned(random() % 3); kind < 2)
          indices[kind][size_t(row * stride + counts[kind][size_t(row)]++)] = int32_t(block);
    view = {shape, counts[0].data(), indices[0].data(), counts[1].data(), indices[1].data(), stride};
  }
};

/// [rows, H, D] as [1, H, rows, D].
TensorView headsFirst(const Tensor& packed) {
  TensorView view = packed.view;
  const int64_t rows = view.shape[0], heads = view.shape[1], columns = view.shape[2];
  view.rank = 4;
  view.shape = {1, heads, rows, columns};
  view.stride = {rows * heads * columns, columns, heads * columns, 1};
  return view;
}

std::vector<int32_t> cumulative(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> starts{kBefore};
  for (int32_t length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

int32_t longest(const std::vector<int32_t>& lengths) { return *std::max_element(lengths.begin(), lengths.end()); }

/// Rows of no sequence become NaN.
void poison(Tensor& packed, const std::vector<int32_t>& starts) {
  for (int64_t row = 0; row < packed.view.shape[0]; ++row)
    for (int64_t h = 0; (row < starts.front() || row >= starts.back()) && h < packed.view.shape[1]; ++h)
      for (int64_t d = 0; d < packed.view.shape[2]; ++d) packed.set({row, h, d}, kNan);
}

TensorView vectorOf(std::vector<int32_t>& values) {
  return TensorView::contiguous(values.data(), DType::I32, {int64_t(values.size())});
}

/// As host::Map of host_gpu.h.
struct HostMap {
  const void* data;
  int64_t extent[4], strideBytes[3];
  int boxRows;
};

plan::ParameterBlock parametersOf(const plan::Stage& stage, const plan::LaunchOperands& operands,
                                  const plan::Device& device, const plan::WorkspaceView& workspace) {
  if (stage.templateName != "forward_sm90.cu") {
    auto made = stage.parameters(stage, operands, device, workspace);
    if (!made) FAIL(made.error().message);
    return *made;
  }
  ForwardParamsSm90 params = plan::forwardParamsSm90(stage, operands, device, workspace);
  for (const plan::MapPlace& place : plan::mapsOf(params, stage, operands)) {
    const TensorView& of = *place.tensor;
    const HostMap map{of.data,
                      {of.shape[3], of.shape[2], of.shape[1], of.shape[0]},
                      {of.stride[2] * 2, of.stride[1] * 2, of.stride[0] * 2},
                      place.boxRows};
    static_assert(sizeof map <= sizeof(TensorMap));
    std::memcpy(place.map, &map, sizeof map);
    *place.batchStep = plan::batchStepOf(of);
  }
  return plan::withCache(params, stage, operands);
}

/// The tensors of a launch: q, new rows and results packed, k and v packed or in pages.
struct Work {
  std::vector<int32_t> starts, kvStarts, kvLengths, table;
  int64_t rows, kvRows, kvRoom; ///< kvRoom: of a sequence, with pages
  std::mt19937 random{5};
  Tensor q, k, v, newK, newV;

  explicit Work(const Case& c)
      : starts(cumulative(c.qLengths)), kvStarts(cumulative(c.kvLengths.empty() ? c.qLengths : c.kvLengths)),
        kvLengths(c.kvLengths.empty() ? c.qLengths : c.kvLengths), rows(starts.back() + kBehind),
        kvRows(kvStarts.back() + kBehind), kvRoom(c.pageSize ? (longest(kvLengths) / c.pageSize + 1) * c.pageSize : 0),
        q(DType::BF16, {rows, c.heads, c.headDim}, random), k(DType::BF16, shapeOfKv(c), random),
        v(DType::BF16, shapeOfKv(c), random), newK(DType::BF16, {rows, c.kvHeads, c.headDim}, random),
        newV(DType::BF16, {rows, c.kvHeads, c.headDim}, random) {
    for (Tensor* tensor : {&q, &newK, &newV}) poison(*tensor, starts);
    if (!c.pageSize) {
      poison(k, kvStarts), poison(v, kvStarts);
      return;
    }
    table.resize(size_t(k.view.shape[0]));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), random);
    const int64_t pages = kvRoom / c.pageSize;
    for (size_t b = 0; b < kvLengths.size(); ++b)
      for (int64_t i = 0; i < kvRoom; ++i) {
        const bool isNew = c.appends && i >= kvLengths[b] - c.qLengths[b];
        int32_t& page = table[b * size_t(pages) + size_t(i / c.pageSize)];
        for (int64_t h = 0; (isNew || i >= kvLengths[b]) && h < c.kvHeads; ++h)
          for (int64_t d = 0; d < c.headDim; ++d)
            k.set({page, h, i % c.pageSize, d}, kNan), v.set({page, h, i % c.pageSize, d}, kNan);
      }
    for (size_t b = 0; b < kvLengths.size(); ++b)
      for (int64_t i = 0; i < pages; ++i)
        if (i * c.pageSize >= kvLengths[b]) table[b * size_t(pages) + size_t(i)] = -1; // no page
  }
  std::vector<int64_t> shapeOfKv(const Case& c) const {
    if (!c.pageSize) return {kvRows, c.kvHeads, c.headDim};
    return {int64_t(c.qLengths.size()) * kvRoom / c.pageSize, c.kvHeads, c.pageSize, c.headDim};
  }

  Operands operands(const Case& c) {
    Operands operands{.q = headsFirst(q), .k = k.view, .v = v.view};
    operands.cuSeqlensQ = vectorOf(starts);
    operands.maxQLen = longest(c.qLengths), operands.maxKvLen = longest(kvLengths);
    if (!c.pageSize) {
      operands.k = headsFirst(k), operands.v = headsFirst(v);
      if (!c.kvLengths.empty()) operands.cuSeqlensKv = vectorOf(kvStarts);
      return operands;
    }
    operands.kvLengths = vectorOf(kvLengths);
    operands.pageTable =
        TensorView::contiguous(table.data(), DType::I32, {int64_t(kvLengths.size()), kvRoom / c.pageSize});
    if (c.appends) operands.newK = headsFirst(newK), operands.newV = headsFirst(newV);
    return operands;
  }
};

/// Runs the kernels of a launch on the host.
void launch(const Mod& mod, const KernelOptions& options, const Operands& operands, const Outputs& outputs) {
  auto derived = derive(mod, options);
  if (!derived) FAIL(derived.error().message);
  auto plan = choosePlan(*derived, options);
  if (!plan) FAIL(plan.error().message);
  auto sources = test::compiler().source(mod, options);
  if (!sources) FAIL(sources.error().message);
  auto checked = plan::checkForward(operands, outputs, plan->options);
  if (!checked) FAIL(checked.error().message);
  const plan::WorkspaceLayout layout(plan->workspace, *checked);
  std::vector<char> memory(layout.bytes() + 2 * kWorkspaceAlignment, char(0));
  const plan::WorkspaceView view{
      layout, memory.data() + (kWorkspaceAlignment - reinterpret_cast<uintptr_t>(memory.data()) % kWorkspaceAlignment)};
  const plan::Device device{.multiprocessors = 3};
  auto bindings = ir::bind(derived->module(), Captures(), checked->problem, &*checked);
  if (!bindings) FAIL(bindings.error().message);
  for (size_t i = 0; i < plan->stages.size(); ++i) {
    const plan::Stage& stage = plan->stages[i];
    const int64_t ctas = plan::ctasOf(stage, *checked, device);
    if (ctas == 0) continue;
    auto form = kernelModOf(*derived, plan::formOf(stage));
    REQUIRE(form);
    uint64_t words[256] = {}, zero = 0;
    codegen::packArgs((*form)->source.slots, *bindings, &zero, words);
    plan::ParameterBlock params = parametersOf(stage, *checked, device, view);
    const std::string space = options.family == Family::Naive  ? "naive"
                              : options.family == Family::Sm80 ? "sm80"
                                                               : "sm90";
    const bool appends = stage.templateName == "append.cu";
    test::HostStage& compiled = test::hostStage(sources->at(i), appends ? "Cached<ForwardParams>" : space + "::Params");
    INFO(stage.templateName << ", " << ctas << " CTAs");
    const std::string error = compiled.run(params.data(), words, unsigned(ctas), unsigned(stage.threads), 3);
    REQUIRE(error == "");
  }
}

void check(const Case& c) {
  INFO(fmt::format("{} {}, q {}, kv {}, pages {}, appends {}, blocks {} x {}", familyName(c.family), c.mod, c.qLengths,
                   c.kvLengths, c.pageSize, c.appends, c.qBlock, c.kvBlock));
  auto mod = Mod::parse(c.mod);
  REQUIRE(mod);
  Work work(c), ofReference = work;
  const int64_t count = int64_t(c.qLengths.size());
  Operands operands = work.operands(c);
  const BlockMaskShape shape{
      c.perSequence ? count : 1, c.perHead ? c.heads : 1, operands.maxQLen, operands.maxKvLen, c.qBlock, c.kvBlock};
  const Lists lists(shape, work.random);
  operands.blockMask = &lists.view;
  Tensor out(DType::BF16, {work.rows, c.heads, c.headDim}, work.random),
      want(DType::F32, out.view.shape[0] ? std::vector<int64_t>{work.rows, c.heads, c.headDim} : std::vector<int64_t>{},
           work.random);
  Tensor lse(DType::F32, {1, c.heads, work.rows}, work.random), wantLse = lse, rowMax = lse, wantMax = lse;

  Operands given = ofReference.operands(c);
  given.blockMask = &lists.view;
  const Status status = computeOnCpu(*mod, given, {headsFirst(want), wantLse.view, wantMax.view});
  if (!status) FAIL(status.error().message);

  KernelOptions options = optionsOf(operands, {.out = headsFirst(out), .rowMax = rowMax.view}, {.arch = "sm_90a"});
  options.family = c.family;
  options.tile = c.tile;
  launch(*mod, options, operands, {headsFirst(out), lse.view, rowMax.view});

  int wrong = 0;
  const auto differ = [&](double is, double wanted, double by) {
    if (is != wanted && !(std::fabs(is - wanted) <= by) && ++wrong < 5) WARN(is << " instead of " << wanted);
  };
  for (int64_t row = work.starts.front(); row < work.starts.back(); ++row)
    for (int64_t h = 0; h < c.heads; ++h) {
      differ(lse.at({0, h, row}), wantLse.at({0, h, row}), 1e-3);
      differ(rowMax.at({0, h, row}), wantMax.at({0, h, row}), 1e-3);
      for (int64_t d = 0; d < c.headDim; ++d) {
        const double wanted = want.at({row, h, d});
        differ(out.at({row, h, d}), wanted, 0x1p-7 * (1 + std::fabs(wanted)));
      }
    }
  CHECK(wrong == 0);
  CHECK(std::memcmp(work.k.view.data, ofReference.k.view.data, size_t(work.k.view.elements()) * 2) == 0);
  CHECK(std::memcmp(work.v.view.data, ofReference.v.view.data, size_t(work.v.view.elements()) * 2) == 0);
}

/// None, one, around the edges of tiles and blocks, and more than a block.
const std::vector<int32_t> kLengths = {5, 0, 129, 1, 64, 200}, kOtherLengths = {130, 3, 0, 70, 257, 60};

} // namespace

TEST_CASE("kernels of ragged batches walk the lists of each sequence", "[on-host]") {
  for (Family family : {Family::Naive, Family::Sm80, Family::Sm90}) {
    check({.family = family, .qLengths = kLengths});
    check({.family = family, .qLengths = kLengths, .kvLengths = kOtherLengths, .perHead = false});
    check({.family = family, .qLengths = kLengths, .perSequence = false});
    check({.family = family, .qLengths = kLengths, .mod = "score", .kvBlock = 64});
    check({.family = family, .qLengths = kOtherLengths, .mod = "q_idx >= kv_idx", .qBlock = 256});
  }
  check({.family = Family::Sm80, .qLengths = kLengths, .headDim = 40, .qBlock = 64, .kvBlock = 64});
}

TEST_CASE("kernels of ragged batches walk lists over pages, to which rows are appended", "[on-host]") {
  for (Family family : {Family::Naive, Family::Sm80, Family::Sm90})
    for (bool appends : {false, true})
      check({.family = family,
             .qLengths = {1, 0, 130, 1, 7},
             .kvLengths = {200, 0, 130, 3, 129},
             .mod = "(q_idx + kv_idx) % 5 != 0",
             .pageSize = appends ? 16 : 64,
             .appends = appends});
}
