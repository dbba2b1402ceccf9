// Low-rank terms in columns of q and k: for which requests, how many columns, and which of two forms a launch runs.
#include "tests/plan/planned.h"

#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "families/capture_gradients.h"
#include "families/catalog.h"
#include "ir/bind.h"
#include "launch/launch_operands.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

using namespace attnc;
using Catch::Contains;

namespace {

void* const kSomewhere = reinterpret_cast<void*>(0x1000);

Mod dot(int rank, const std::string& u = "bf16", const std::string& w = "bf16", const std::string& gain = "gain * ",
        const std::string& headOfW = "0") {
  return take(Mod::parse(fmt::format("u: {1}[B, H, Q_LEN, {0}]\nw: {2}[B, H, KV_LEN, {0}]\ngain: float\n"
                                     "score + {3}(u[b, h, q_idx] @ w[b, {4}, kv_idx])",
                                     rank, u, w, gain, headOfW)));
}

KernelOptions options(int headDim) { return {.arch = "sm_90a", .headDim = headDim}; }

std::vector<int> headDimsOf(const plan::Plan& plan) {
  std::vector<int> dims;
  for (const plan::Stage& stage : plan.stages)
    dims.push_back(stage.config.lowRank ? stage.config.lowRank->wideHeadDim : stage.config.headDimQk);
  return dims;
}

plan::LaunchOperands launchOf(const plan::Plan& plan, ProblemShape s, float scale) {
  const auto tensor = [](int64_t batch, int64_t heads, int64_t length, int64_t dim) {
    return TensorView::contiguous(kSomewhere, DType::BF16, {batch, heads, length, dim});
  };
  const int64_t dim = plan.options.headDim;
  Operands operands{.q = tensor(s.batch, s.qHeads, s.qLen, dim),
                    .k = tensor(s.batch, s.kvHeads, s.kvLen, dim),
                    .v = tensor(s.batch, s.kvHeads, s.kvLen, dim),
                    .scale = scale};
  if (plan.options.offsets == QueryOffsets::Tensor)
    operands.qOffsets = TensorView::contiguous(kSomewhere, DType::I32, {s.batch});
  return take(plan::checkForward(operands, {.out = tensor(s.batch, s.qHeads, s.qLen, dim)}, plan.options));
}

} // namespace

TEST_CASE("kernels for a wider head dim take a low-rank term with the score", "[plan][low_rank]") {
  struct Row {
    int rank, headDim;
    const char *u, *w;
    std::vector<int> dims;
    const char* words;
  };
  for (const Row& row : std::initializer_list<Row>{
           {64,
            128,
            "bf16",
            "bf16",
            {192, 192, 256, 256},
            "rank 64: 64 columns of q and k (head dim 192), exact, if factor / scale is a power of two; else 128 (head "
            "dim 256), to 2^-16"},
           {64,
            192,
            "bf16",
            "bf16",
            {256, 256, 192},
            "rank 64: 64 columns of q and k (head dim 256), exact, if factor / scale is a power of two; else in the "
            "mod"},
           {16, 64, "f32", "bf16", {112, 112}, "rank 16: 48 columns of q and k (head dim 112), as exact as f32"},
           {16,
            64,
            "bf16",
            "f32",
            {96, 96, 112, 112},
            "rank 16: 32 columns of q and k (head dim 96), to 2^-16, if factor / scale is a power of two; else 48 "
            "(head "
            "dim 112), to 2^-14"},
           {20, 128, "f32", "f16", {256, 256}, "rank 20: 120 columns of q and k (head dim 256), as exact as f32"},
           {32,
            128,
            "f32",
            "f32",
            {128},
            "not in columns: q and k would have head dim 320, and kernels take 256; with lowRankError 6.1e-05 it can "
            "be 224, with captures declared bf16 160"},
           {16, 256, "bf16", "bf16", {256}, "not in columns: q and k would have head dim 288, and kernels take 256"},
           {65, 64, "bf16", "bf16", {64}, "not in columns: rank 65, and columns are for at most 64"},
           {3, 64, "bf16", "bf16", {64}, "not in columns: rank 3, and columns gain from 4"}}) {
    const plan::Plan plan = test::planOf(dot(row.rank, row.u, row.w), options(row.headDim));
    INFO(row.rank << " " << row.headDim << " " << row.u << " " << row.w);
    CHECK(headDimsOf(plan) == row.dims);
    CHECK(plan.lowRank == row.words);
    CHECK(plan.options.headDim == row.headDim);
    CHECK(plan.readsBindings == (plan.lowRank.find("power of two") != std::string::npos));
    CHECK(plan::walkingStage(plan).config.headDimQk == (row.dims.size() > 1 ? row.dims[1] : row.headDim));
  }
  CHECK(test::planOf(Mod::identity(), options(64)).lowRank == "");
  CHECK(test::planOf(dot(16, "bf16", "bf16", "u[b, h, q_idx, 0] * "), options(64)).readsBindings == false);
}

TEST_CASE("an error that is allowed says how many columns a low-rank term takes", "[plan][low_rank]") {
  struct Row {
    int rank, headDim;
    const char *u, *w;
    float error;
    const char* words;
  };
  const auto planOf = [](const Row& row, float error) {
    KernelOptions asked = options(row.headDim);
    asked.lowRankError = error;
    return test::planOf(dot(row.rank, row.u, row.w), asked);
  };
  const auto isInColumns = [](const plan::Plan& plan) { return plan.lowRank.starts_with("rank"); };
  for (const Row& row : std::initializer_list<Row>{
           {64, 128, "f32", "f32", 0.01f, "rank 64: 64 columns of q and k (head dim 192), to 2^-7"},
           {64, 128, "f32", "f32", 0.005f, "rank 64: 128 columns of q and k (head dim 256), to 2^-8"},
           {42, 128, "f32", "f32", 1e-4f, "rank 42: 126 columns of q and k (head dim 256), to 2^-14"},
           {25, 128, "f32", "f32", 2e-5f, "rank 25: 125 columns of q and k (head dim 256), to 2^-16"},
           {21, 128, "f32", "f32", 1e-6f, "rank 21: 126 columns of q and k (head dim 256), as exact as f32"},
           {64, 128, "f32", "bf16", 0.005f, "rank 64: 64 columns of q and k (head dim 192), to 2^-8"},
           {64, 128, "f32", "bf16", 2e-5f, "rank 64: 128 columns of q and k (head dim 256), to 2^-16"},
           {64, 128, "bf16", "bf16", 0.005f, "rank 64: 64 columns of q and k (head dim 192), to 2^-8"},
           {16, 64, "bf16", "f32", 0.005f,
            "rank 16: 16 columns of q and k (head dim 80), to 2^-8, if factor / scale is a power of two; else 32 (head "
            "dim 96), to 2^-8"},
           {16, 64, "bf16", "bf16", 1e-6f,
            "rank 16: 16 columns of q and k (head dim 80), exact, if factor / scale is a power of two; else 48 (head "
            "dim 112), as exact as f32"},
           {16, 64, "f32", "f32", 1e-9f,
            "not in columns: no columns are within the lowRankError 1e-09; with lowRankError 4.8e-07 it can be 160, "
            "with captures declared bf16 80"}}) {
    const plan::Plan plan = planOf(row, row.error);
    INFO(row.rank << " " << row.headDim << " " << row.u << " " << row.w << " " << row.error);
    CHECK_THAT(row.words, Contains(fmt::format("dim {})", headDimsOf(plan).front())) || !Contains("(head dim"));
    CHECK(plan.lowRank == row.words);
    CHECK(plan.options.lowRankError == row.error);
    if (std::string(row.u) == row.w)
      CHECK(isInColumns(planOf(row, 0)) == (row.rank <= 21 || row.u == std::string("bf16")));
  }
  // The error that is named where none fit takes columns that fit.
  for (int rank : {24, 30, 50, 64})
    for (const char* w : {"f32", "bf16"}) {
      const Row row{rank, 128, "f32", w, 0, ""};
      const std::string words = planOf(row, 0).lowRank;
      INFO(rank << " " << w << " " << words);
      const size_t at = words.find("lowRankError ");
      if (words.starts_with("rank")) continue;
      REQUIRE(at != std::string::npos);
      const plan::Plan named = planOf(row, std::stof(words.substr(at + 13)));
      CHECK(isInColumns(named));
      CHECK_THAT(words, Contains(fmt::format("it can be {}", headDimsOf(named).front())));
    }
}

TEST_CASE("low-rank terms stay in mods of kernels that take no wider q and k", "[plan][low_rank]") {
  const Mod mod = dot(16);
  const auto words = [&](KernelOptions asked) {
    asked.arch = "sm_90a", asked.headDim = 64;
    const plan::Plan plan = test::planOf(mod, asked);
    for (const plan::Stage& stage : plan.stages) CHECK(stage.config.headDimQk == 64);
    return plan.lowRank;
  };
  CHECK(words({.family = Family::Naive}) == "not in columns: family naive computes it");
  CHECK(words({.kind = KernelKind::Decode}) == "not in columns: decode kernels compute it");
  CHECK(words({.kind = KernelKind::Backward, .family = Family::Naive}) == "not in columns: family naive computes it");
  CHECK(test::planOf(dot(7), {.kind = KernelKind::Backward, .arch = "sm_90a", .headDim = 64}).lowRank ==
        "not in columns: rank 7, and columns gain from 8");
  CHECK(words({.kind = KernelKind::Backward, .dtype = DType::F16}) ==
        "not in columns: the range of f16 may not hold the factors");
  CHECK(words({.dtype = DType::F16}) == "not in columns: the range of f16 may not hold the factors");
  CHECK(words({.kind = KernelKind::Backward,
               .features = {Feature::Ragged, Feature::Deterministic},
               .gradients = {"u"}}) == "not in columns: sequences add to captures in any order");
  CHECK(words({.features = {Feature::Lengths}, .pageSize = 16}) ==
        "not in columns: columns of q and k go with no pages");
  CHECK_THAT(test::planOf(mod, {.family = Family::Sm80, .arch = "sm_80", .headDim = 64}).lowRank,
             Contains("(head dim 80)"));
}

TEST_CASE("a launch runs the form that its numbers allow", "[plan][low_rank]") {
  const ProblemShape shape{2, 4, 2, 130, 70};
  const auto stagesRun = [&](const Mod& mod, double gain, float scale, float error = 0) {
    KernelOptions asked = options(64);
    asked.lowRankError = error;
    const plan::Plan plan = test::planOf(mod, asked);
    plan::LaunchOperands launch = launchOf(plan, shape, scale);
    std::vector<std::vector<char>> memory;
    Captures captures;
    captures.set("gain", gain);
    for (auto [name, rows] : {std::pair("u", shape.qLen), {"w", shape.kvLen}})
      captures.set(name, TensorView::contiguous(kSomewhere, DType::BF16, {2, 4, rows, 16}));
    auto bindings = ir::bind(mod.module(), captures, shape, &launch);
    REQUIRE(bindings);
    launch.bindings = &*bindings;
    std::string run;
    for (const plan::Stage& stage : plan.stages) run += plan::ctasOf(stage, launch, {132}) ? "1" : "0";
    return run;
  };
  CHECK(stagesRun(dot(16), 0.3f, 0.3f) == "0100"); // the captures are the columns
  CHECK(stagesRun(dot(16), -0.6f, 0.3f) == "1100");
  CHECK(stagesRun(dot(16), 0.31f, 0.3f) == "0011");
  CHECK(stagesRun(dot(16), 3 * 0.3f, 0.3f) == "0011");
  CHECK(stagesRun(dot(16), 0, 0.3f) == "0011");
  CHECK(stagesRun(dot(16), 0.5, 0) == "1100"); // factors are divided by 2^-48
  CHECK(stagesRun(dot(16), 0x1p-48, 0) == "0100");
  CHECK(stagesRun(dot(16), 0.3f, 0) == "0011");
  CHECK(stagesRun(dot(16), 0x1p-120, 0x1p-119f) == "0011");
  CHECK(stagesRun(dot(16, "bf16", "bf16", "2.0 * "), 1, 0.125f) == "1100");
  CHECK(stagesRun(dot(16, "bf16", "bf16", "0.1 * "), 1, 0.125f) == "0011");
  CHECK(stagesRun(dot(16, "bf16", "bf16", "(1 / gain) * "), 4, 0.125f) == "1100");
  CHECK(stagesRun(dot(16, "bf16", "bf16", "(gain + 1) * "), 1, 0.125f) == "11"); // not known to be a power of two
  CHECK(stagesRun(dot(16), 0.3f, 0.3f, 0.005f) == "01"); // one form, with the captures as columns
  CHECK(stagesRun(dot(16), 0.31f, 0.3f, 0.005f) == "11");
  CHECK(stagesRun(dot(16, "bf16", "bf16", "(gain + 1) * "), 1, 2, 0.005f) == "11");
}

TEST_CASE("captures are the further columns where the copy engine can read them", "[plan][low_rank]") {
  const ProblemShape shape{2, 4, 2, 130, 70};
  struct Operand {
    std::string text;                   // of the factor
    std::vector<int64_t> shape, stride; // of the capture; no strides: dense
    DType dtype = DType::BF16;
    uintptr_t offset = 0;
  };
  const Operand u{"u[b, h, q_idx]", {2, 4, 130, 16}, {}}, w{"w[b, kv_idx]", {2, 70, 16}, {}};
  /// "q k" if the stage in front writes columns of both.
  const auto written = [&](const Operand& u, const Operand& w, int headDim = 64, const std::string& sign = "+",
                           bool offsets = false) {
    std::string text = "gain: float\n";
    Captures captures;
    captures.set("gain", 0.3f);
    for (auto [name, operand] : {std::pair("u", &u), {"w", &w}}) {
      text += fmt::format("{}: {}[", name, dtypeName(operand->dtype));
      TensorView view;
      view.data = static_cast<char*>(kSomewhere) + operand->offset;
      view.dtype = operand->dtype, view.rank = int(operand->shape.size());
      std::copy(operand->shape.begin(), operand->shape.end(), view.shape.begin());
      std::copy(operand->stride.begin(), operand->stride.end(), view.stride.begin());
      int64_t step = 1;
      for (int axis = view.rank; axis-- > 0 && operand->stride.empty(); step *= view.shape[axis])
        view.stride[axis] = step;
      captures.set(name, view);
      for (size_t axis = 0; axis < operand->shape.size(); ++axis) {
        const int64_t extent = operand->shape[axis];
        text += fmt::format("{}{}", axis ? ", " : "",
                            extent == 2     ? "B"
                            : extent == 4   ? "H"
                            : extent == 130 ? "Q_LEN"
                            : extent == 70  ? "KV_LEN"
                                            : std::to_string(extent));
      }
      text += "]\n";
    }
    auto mod = take(Mod::parse(text + fmt::format("score {} gain * ({} @ {})", sign, u.text, w.text)));
    KernelOptions asked = options(headDim);
    if (offsets) asked.offsets = QueryOffsets::Tensor;
    auto derived = take(derive(mod, asked));
    const plan::Plan plan = test::planOf(mod, asked);
    INFO(text << u.text << " " << w.text << " " << plan.lowRank);
    REQUIRE(plan.stages[0].templateName == "low_rank.cu");
    const plan::Stage& stage = plan.stages[0];
    plan::LaunchOperands launch = launchOf(plan, shape, 0.3f);
    auto bindings = ir::bind(derived.module(), captures, shape, &launch);
    if (!bindings) FAIL(bindings.error().message);
    launch.bindings = &*bindings;
    const plan::WorkspaceLayout layout(plan.workspace, launch);
    const plan::WorkspaceView workspace{layout, kSomewhere};
    auto params = take(stage.parameters(stage, launch, {}, workspace));
    const auto& columns = params.as<LowRankParams>();
    const int64_t ofQ = columns.q ? 2 * 4 * 3 : 0, ofK = columns.k ? int64_t(columns.k_batch) * columns.k_heads * 2 : 0;
    CHECK(plan::ctasOf(stage, launch, {132}) == ofQ + ofK);
    return std::string(columns.q ? "q " : "") + (columns.k ? "k" : "");
  };
  CHECK(written(u, w) == "");
  CHECK(written(u, w, 128) == "");
  CHECK(written(u, w, 72) == "q k"); // the copy engine loads columns by 64
  CHECK(written(u, w, 64, "-") == "q ");
  CHECK(written({"u[h, q_idx]", {4, 130, 16}, {}}, {"w[kv_idx]", {70, 16}, {}}) == "");
  CHECK(written({"u[q_idx]", {130, 16}, {}}, {"w[b, h, kv_idx]", {2, 4, 70, 16}, {}}) == "");
  CHECK(written({"u[b, h, q_idx]", {2, 4, 130, 16}, {4 * 130 * 16, 16, 64, 1}}, w) == "");   // [B, S, H, R]
  CHECK(written({"u[b, h, q_idx]", {2, 4, 130, 16}, {0, 0, 16, 1}}, w) == "");               // expanded
  CHECK(written({"u[b, h, q_idx]", {2, 4, 130, 16}, {8320, 2080, 1, 130}}, w) == "q ");      // [B, H, R, S]
  CHECK(written({"u[b, h, q_idx]", {2, 4, 130, 16}, {8320 * 2, 2080 * 2, 24, 1}}, w) == ""); // of longer rows
  CHECK(written({"u[b, h, q_idx]", {2, 4, 130, 16}, {8320 * 2, 2080 * 2, 20, 1}}, w) == "q ");
  CHECK(written({"u[b, h, q_idx]", {2, 4, 130, 16}, {0, 0, 0, 1}}, w) == "q ");
  CHECK(written({"u[b, h, q_idx]", {2, 4, 130, 16}, {}, DType::BF16, 16}, w) == "");
  CHECK(written({"u[b, h, q_idx]", {2, 4, 130, 16}, {}, DType::BF16, 8}, w) == "q ");
  CHECK(written(u, {"w[b, kv_idx]", {2, 70, 16}, {}, DType::BF16, 2}) == "k");
  CHECK(written({"u[b, h, q_idx]", {2, 4, 130, 5}, {}}, {"w[b, kv_idx]", {2, 70, 5}, {560, 8, 1}}) == "q ");
  CHECK(written({"u[b, 3, q_idx]", {2, 9, 130, 16}, {}}, w) == "");
  CHECK(written({"u[b, q_idx, 5]", {2, 130, 9, 16}, {}}, w) == "");
  CHECK(written({"(-u[b, h, q_idx])", {2, 4, 130, 16}, {}}, w) == "q ");
  CHECK(written({"u[b, h, q_idx // 2]", {2, 4, 130, 16}, {}}, w) == "q ");
  CHECK(written({"u[b, h // 2, q_idx]", {2, 4, 130, 16}, {}}, w) == "q ");
  CHECK(written({"u[b, h, q_idx]", {2, 4, 130, 16}, {}}, {"w[b, kv_idx]", {2, 70, 16}, {}, DType::F16}) == "q k");
  CHECK(written({"u[b, h, q_idx, 8:]", {2, 4, 130, 24}, {}}, w) == ""); // of longer rows
  CHECK(written({"u[b, h, q_idx, 7:23]", {2, 4, 130, 24}, {}}, w) == "q ");
  CHECK(written({"u[b, h, q_idx, 8:13]", {2, 4, 130, 24}, {}}, {"w[b, kv_idx, 3:]", {2, 70, 8}, {}}) == "k");
  CHECK(written({"u[b, h, q_idx]", {2, 4, 130, 8}, {}}, {"w[b, kv_idx]", {2, 70, 8}, {}}) == ""); // unrolled
  CHECK(written(u, w, 64, "+", /*offsets=*/true) == "q "); // the query's index is not its row
}

TEST_CASE("wider copies have room in the workspace, one head of k for each factor of its own", "[plan][low_rank]") {
  const ProblemShape shape{2, 4, 2, 130, 70};
  const auto bytes = [&](const std::string& headOfW, plan::Use use, int headDim = 72) {
    const plan::Plan plan = test::planOf(dot(16, "f32", "bf16", "gain * ", headOfW), options(headDim));
    const plan::LaunchOperands launch = launchOf(plan, shape, 0.125f);
    const plan::WorkspaceLayout layout(plan.workspace, launch);
    CHECK_FALSE(plan::checkWorkspace({layout, nullptr}));
    const plan::WorkspacePart* part = layout.find(use);
    return part ? part->bytes : 0;
  };
  CHECK(bytes("0", plan::Use::WideQ) == 2 * 4 * 130 * 128 * 2);
  CHECK(bytes("0", plan::Use::WideK) == 2 * 2 * 70 * 128 * 2);
  CHECK(bytes("0", plan::Use::WideV) == 0);
  CHECK(bytes("h", plan::Use::WideK) == 2 * 4 * 70 * 128 * 2);
  CHECK(bytes("h", plan::Use::WideV) == 2 * 4 * 70 * 72 * 2);
  // Columns of their own: once for all heads that share them.
  CHECK(bytes("0", plan::Use::WideQ, 64) == 2 * 4 * 130 * 48 * 2);
  CHECK(bytes("0", plan::Use::WideK, 64) == 2 * 1 * 70 * 48 * 2);
  CHECK(bytes("h", plan::Use::WideK, 64) == 2 * 4 * 70 * 48 * 2);
  CHECK(bytes("h", plan::Use::WideV, 64) == 0);
}

TEST_CASE("kernels of a low-rank form are launched with the wider copies, and with a scale for them",
          "[plan][low_rank]") {
  const ProblemShape shape{2, 4, 2, 130, 70};
  for (const char* headOfW : {"0", "h"})
    for (float scale : {0.125f, -3.f, 0.f}) {
      const Mod mod = dot(16, "f32", "bf16", "", headOfW);
      const plan::Plan plan = test::planOf(mod, {.family = Family::Sm80, .arch = "sm_80", .headDim = 64});
      const plan::LaunchOperands launch = launchOf(plan, shape, scale);
      const plan::WorkspaceLayout layout(plan.workspace, launch);
      const plan::WorkspaceView workspace{layout, kSomewhere};
      REQUIRE(plan.stages.size() == 2);
      auto copying = plan.stages[0].parameters(plan.stages[0], launch, {}, workspace);
      auto attending = plan.stages[1].parameters(plan.stages[1], launch, {}, workspace);
      REQUIRE((copying && attending));
      const auto& copies = copying->as<LowRankParams>();
      const auto& params = attending->as<ForwardParams>();
      const bool perHead = *headOfW == 'h';
      INFO("scale " << scale << ", w of head " << headOfW);
      CHECK(copies.base.q == kSomewhere);
      CHECK(copies.base.kv_heads == 2);
      CHECK(params.q == copies.q);
      CHECK(params.k == copies.k);
      CHECK(params.v == (perHead ? copies.v : kSomewhere));
      CHECK(params.kv_heads == (perHead ? 4 : 2));
      CHECK(params.group == (perHead ? 1 : 2));
      CHECK(params.q_stride.row == 112);
      CHECK(params.k_stride.head == 70 * 112);
      CHECK(params.v_stride.row == 64);
      CHECK(params.scale == (scale == 0 ? 0x1p-48f : scale));
      CHECK(copies.factor_times == (scale == 0 ? 0x1p48f : 1 / scale));
    }
}

TEST_CASE("the stages of a launch share its wider operands, each form its own", "[plan][low_rank]") {
  const ProblemShape shape{2, 4, 2, 130, 70};
  for (double gain : {0.5, 0.3}) { // the scale is 0.25: exact, or to 2^-16
    const Mod mod = dot(16);
    const plan::Plan plan = test::planOf(mod, {.family = Family::Sm80, .arch = "sm_80", .headDim = 64});
    CHECK(plan.widensOperands);
    REQUIRE(plan.stages.size() == 4);
    plan::LaunchOperands launch = launchOf(plan, shape, 0.25f);
    Captures captures;
    captures.set("gain", gain);
    for (auto [name, rows] : {std::pair("u", shape.qLen), {"w", shape.kvLen}})
      captures.set(name, TensorView::contiguous(kSomewhere, DType::BF16, {2, 4, rows, 16}));
    auto bindings = ir::bind(mod.module(), captures, shape, &launch);
    REQUIRE(bindings);

    struct Seen {
      std::vector<size_t> parts;
      std::vector<int64_t> ctas;
      std::vector<uint64_t> tiles;
      std::vector<const void*> q;
      std::vector<int64_t> strides;
      bool operator==(const Seen&) const = default;
    };
    const auto seen = [&](bool shares) {
      plan::WideOperands shapes(nullptr);
      launch.bindings = nullptr;
      launch.wide = shares ? &shapes : nullptr;
      const plan::WorkspaceLayout layout(plan.workspace, launch);
      const plan::WorkspaceView workspace{layout, kSomewhere};
      plan::WideOperands wide(&workspace);
      launch.bindings = &*bindings;
      launch.wide = shares ? &wide : nullptr;
      Seen all;
      for (const plan::WorkspacePart& part : layout.parts()) all.parts.push_back(part.bytes);
      for (const plan::Stage& stage : plan.stages) {
        all.tiles.push_back(stage.tiles(stage, launch));
        all.ctas.push_back(plan::ctasOf(stage, launch, {132}));
        if (!all.ctas.back() || stage.config.lowRank) continue;
        auto params = take(stage.parameters(stage, launch, {132}, workspace));
        all.q.push_back(params.as<ForwardParams>().q);
        all.strides.push_back(params.as<ForwardParams>().q_stride.row);
      }
      return all;
    };
    const Seen apart = seen(false), shared = seen(true);
    CHECK(apart == shared);
    REQUIRE(apart.q.size() == 1);
    CHECK(apart.q[0] == kSomewhere); // WideQ, at the start of the workspace
    CHECK(apart.strides[0] == (gain == 0.5 ? 80 : 96));
  }

  plan::WideOperands wide(nullptr);
  int made = 0;
  const auto make = [&] {
    ++made;
    return plan::LaunchOperands{};
  };
  const int forms[2] = {};
  const plan::LaunchOperands& first = wide.of(&forms[0], make);
  CHECK(&wide.of(&forms[1], make) != &first);
  CHECK(&wide.of(&forms[0], make) == &first);
  CHECK(made == 2);
}

namespace {

KernelOptions backward(int headDim, std::set<std::string> gradients = {}, bool deterministic = false) {
  return {.kind = KernelKind::Backward,
          .arch = "sm_90a",
          .headDim = headDim,
          .features = {Feature::Deterministic, deterministic},
          .gradients = std::move(gradients)};
}

/// "low_rank delta wide_sm90 ...", the stages of one form after another.
std::string stagesOf(const plan::Plan& plan) {
  std::string names;
  for (const plan::Stage& stage : plan.stages) {
    std::string name = stage.templateName.substr(0, stage.templateName.find('.'));
    if (name.rfind("backward_", 0) == 0) name = name.substr(9);
    names += (names.empty() ? "" : " ") + name;
  }
  return names;
}

} // namespace

TEST_CASE("backward kernels for a wider head dim take a low-rank term, and divide its gradients", "[plan][low_rank]") {
  const Mod mod = dot(64, "bf16", "bf16", "");
  const plan::Plan plain = test::planOf(mod, backward(128));
  CHECK(stagesOf(plain) == "low_rank delta 192_sm90 finish_sm90 large low_rank_gradients low_rank delta wide_sm90 "
                           "finish_sm90 large low_rank_gradients");
  CHECK(plain.lowRank == "rank 64: 64 columns of q and k (head dim 192), exact, if factor / scale is a power of two; "
                         "else 128 (head dim 256), to 2^-16");
  CHECK(plain.captures.empty());
  const plan::Plan both = test::planOf(mod, backward(128, {"u", "w"}));
  CHECK(stagesOf(both) == stagesOf(plain) + " captures_out captures_out");
  for (const plan::Stage& stage : both.stages) CHECK(stage.forCaptures);
  for (const plan::CaptureAccess& capture : both.captures) CHECK((capture.inColumns && capture.places.size() == 1));
  // Hopper's kernel of 256 columns adds up dQ in any order. So a term that takes as many stays in the mod.
  const plan::Plan deterministic = test::planOf(mod, backward(128, {"u", "w"}, true));
  CHECK(deterministic.options.family == Family::Sm90);
  CHECK(stagesOf(deterministic) == "low_rank delta 192_sm90 finish_sm90 large low_rank_gradients "
                                   "delta sm90 finish_sm90 large captures captures_out captures_out");
  CHECK(deterministic.lowRank ==
        "rank 64: 64 columns of q and k (head dim 192), exact, if factor / scale is a power of "
        "two; else in the mod");
  CHECK(stagesOf(test::planOf(dot(16, "bf16", "bf16", "u[b, h, q_idx, 0] * "), backward(64, {}, true))) ==
        "low_rank delta sm90 finish_sm90 large low_rank_gradients");
  // One form in columns, the other in the mod: what suits the sums of one form does not suit the other's.
  const plan::Plan half = test::planOf(mod, backward(192, {"u"}));
  CHECK(stagesOf(half) == "low_rank delta wide_sm90 finish_sm90 large low_rank_gradients delta wide_sm90 finish_sm90 "
                          "large captures captures_out");
  CHECK_FALSE(half.captures[0].inColumns);
  CHECK(half.captures[0].places.size() == 2);
}

TEST_CASE("captures that columns do not suffice for get their gradients from scores", "[plan][low_rank]") {
  const auto inColumns = [](const std::string& text, std::set<std::string> gradients) {
    auto mod = take(Mod::parse(text));
    const plan::Plan plan = test::planOf(mod, backward(64, gradients));
    CHECK(plan.lowRank.rfind("rank", 0) == 0);
    std::string names;
    for (const plan::CaptureAccess& capture : plan.captures)
      if (capture.inColumns) names += capture.name + " ";
    const bool hasOthers = llvm::any_of(plan.captures, [](const auto& capture) { return !capture.inColumns; });
    CHECK((stagesOf(plan).find(" captures ") != std::string::npos ||
           stagesOf(plan).find("diagonals") != std::string::npos) == hasOthers);
    return names;
  };
  const std::string u = "u: bf16[B, H, Q_LEN, 16]\n", w = "w: bf16[B, KV_LEN, 16]\n";
  const std::string term = "u[b, h, q_idx] @ w[b, kv_idx]";
  CHECK(inColumns(u + w + "score + " + term, {"u", "w"}) == "u w ");
  CHECK(inColumns(u + w + "score + " + term, {"w"}) == "w ");
  CHECK(inColumns(u + w + "gain: float\nscore + gain * (" + term + ")", {"u", "w", "gain"}) == "u w ");
  CHECK(inColumns(u + w + "bias: f32[H, N]\nscore + " + term + " + bias[h, q_idx - kv_idx]", {"u", "bias"}) == "u ");
  CHECK(inColumns(u + w + "score + " + term + " + u[b, h, q_idx, kv_idx % 16]", {"u", "w"}) == "w ");
  CHECK(inColumns(u + "score + u[b, h, q_idx] @ u[b, h, kv_idx]", {"u"}) == ""); // on both sides
  CHECK(inColumns(u + w + "score + u.detach()[b, h, q_idx] @ w[b, kv_idx]", {"u", "w"}) == "");
}

TEST_CASE("backward stages of a low-rank form are launched with the wider gradients", "[plan][low_rank]") {
  for (const char* headOfW : {"0", "h"})
    for (bool wantsOperands : {true, false}) {
      INFO("w of head " << headOfW << ", wants operands " << wantsOperands);
      const Mod mod = dot(16, "f32", "bf16", "", headOfW);
      KernelOptions asked = backward(64, {"u"});
      asked.family = Family::Sm80, asked.arch = "sm_80";
      const plan::Plan plan = test::planOf(mod, asked);
      REQUIRE(stagesOf(plan) == "low_rank delta sm80 finish_sm80 large low_rank_gradients captures_out");
      const auto tensor = [](int64_t heads, int64_t length) {
        return TensorView::contiguous(kSomewhere, DType::BF16, {2, heads, length, 64});
      };
      BackwardOperands operands;
      operands.q = tensor(4, 130), operands.k = operands.v = tensor(2, 70), operands.scale = 0.25f;
      operands.out = operands.dOut = tensor(4, 130);
      operands.lse = TensorView::contiguous(kSomewhere, DType::F32, {2, 4, 130});
      const TensorView dq = tensor(4, 130), dk = tensor(2, 70);
      BackwardOutputs outputs;
      if (wantsOperands) outputs.dQ = dq, outputs.dK = outputs.dV = dk;
      Captures captures, gradients;
      captures.set("u", TensorView::contiguous(kSomewhere, DType::F32, {2, 4, 130, 16}));
      captures.set("w", TensorView::contiguous(kSomewhere, DType::BF16, {2, 4, 70, 16}));
      captures.set("gain", 1.0);
      gradients.set("u", TensorView::contiguous(kSomewhere, DType::F32, {2, 4, 130, 16}));
      outputs.captures = &gradients;
      auto launch = take(plan::checkBackward(operands, outputs, plan.options));
      auto derived = take(derive(mod, asked));
      REQUIRE(plan::addCaptureOutputs(launch, plan, derived.module(), &captures, &gradients, true));
      CHECK(launch.captureOutputs[0].isOwned);
      CHECK_FALSE(launch.loopsBatches);
      const plan::WorkspaceLayout layout(plan.workspace, launch);
      const plan::WorkspaceView workspace{layout, kSomewhere};
      const bool perHead = *headOfW == 'h';
      const auto bytes = [&](plan::Use use) { return layout.find(use) ? layout.find(use)->bytes : 0; };
      CHECK(bytes(plan::Use::WideDq) == 2 * 4 * 130 * 112 * 2);
      CHECK(bytes(plan::Use::WideDk) == 2 * (perHead ? 4 : 2) * 70 * 112 * 2);
      CHECK(bytes(plan::Use::WideDv) == 2 * (perHead ? 4 : 2) * 70 * 64 * 2);
      CHECK(bytes(plan::Use::DqSums) >= 2 * 4 * 130 * 112 * 4);
      for (const plan::Stage& stage : plan.stages)
        if (stage.templateName != "backward_captures_out.cu")
          CHECK(plan::ctasOf(stage, launch, {.multiprocessors = 1}) > 0);
      const auto parametersOf = [&](size_t stage) {
        return take(plan.stages[stage].parameters(plan.stages[stage], launch, {.multiprocessors = 1}, workspace));
      };
      const plan::ParameterBlock walk = parametersOf(3), divide = parametersOf(5);
      const auto& params = walk.as<BackwardParams>();
      const auto& divided = divide.as<LowRankGradientParams>();
      CHECK(params.forward.q == workspace.at(plan::Use::WideQ));
      CHECK(params.forward.kv_heads == (perHead ? 4 : 2));
      CHECK(params.d_q == divided.d_q);
      CHECK(params.d_k == divided.d_k);
      CHECK(params.d_q_stride.row == 112);
      CHECK(params.d_k_stride.head == 70 * 112);
      CHECK(params.d_v_stride.row == 64);
      CHECK(params.d_v == (perHead || !wantsOperands ? divided.d_v : kSomewhere));
      CHECK(divided.backward.d_q == (wantsOperands ? kSomewhere : nullptr));
      CHECK(divided.backward.forward.kv_heads == 2);
      CHECK(divided.k_heads == (perHead ? 4 : 2));
      CHECK(divided.factor_times == 4);
      CHECK(divided.own_times == 1);
      CHECK(divided.q_heads == 1);
      CHECK(divided.sums[0].owned == 1);
    }
}
