// Plans: complete when they are made, and what a launch takes from them. Needs no GPU.
#include "tests/api/settled.h"
#include "tests/plan/planned.h"

#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "families/catalog.h"
#include "families/family.h"
#include "families/grids/grid_plan.h"
#include "helpers/plan_parts.h"
#include "launch/tensor_maps.h"
#include "plan/assemble.h"
#include "templates/params_decode.cuh"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace attnc;

namespace {

// Never read: plans only look at shapes and addresses.
void* const kSomewhere = reinterpret_cast<void*>(0x1000);

TensorView tensor(int64_t batch, int64_t heads, int64_t length, int64_t dim) {
  return TensorView::contiguous(kSomewhere, DType::BF16, {batch, heads, length, dim});
}

plan::LaunchOperands launchOf(int64_t qLen) {
  const Operands operands{.q = tensor(2, 8, qLen, 128), .k = tensor(2, 2, 300, 128), .v = tensor(2, 2, 300, 128)};
  const Outputs outputs{.out = tensor(2, 8, qLen, 128)};
  return take(plan::checkForward(operands, outputs, {.headDim = 128, .headDimV = 128}));
}

const plan::WorkspaceLayout kNothing({}, {});
const plan::WorkspaceView kNoWorkspace{kNothing};

Mod mod(const char* text) { return take(Mod::parse(text)); }

} // namespace

TEST_CASE("every plan is complete: its kernels say of themselves what a launch gives them", "[plan]") {
  const Mod mods[] = {Mod::identity(), mod("q_idx >= kv_idx"), mod("ids: i32[KV_LEN]\nids[q_idx] == ids[kv_idx]"),
                      mod("bias: f32[H, Q_LEN, KV_LEN]\nscore + bias[h, q_idx, kv_idx]")};
  const Mod onGrid = test::mod(test::kNeighborhood);
  for (const plan::FamilyRow* row : plan::families())
    for (const Mod& m : row->walksBoxes ? llvm::ArrayRef(onGrid) : llvm::ArrayRef(mods))
      for (int headDim : {64, row->walksBoxes ? 128 : 256}) {
        INFO(familyName(row->family) << ", head dim " << headDim);
        const KernelOptions options{
            .kind = row->kind, .family = row->family, .arch = std::string(row->arch), .headDim = headDim};
        const plan::Plan plan = test::planOf(m, options);
        CHECK(plan.options.family == row->family);
        CHECK(plan.options.headDimV == headDim);
        REQUIRE_FALSE(plan.stages.empty());
        for (const plan::Stage& stage : plan.stages) {
          CHECK(stage.threads >= 32 * stage.config.warps);
          CHECK(stage.parameters);
          auto kernelMod = take(kernelModOf(m, plan::formOf(stage)));
          const KernelSource source = plan::assemble(*kernelMod, stage, plan.options);
          CHECK(source.text.find(stage.entry) != std::string::npos);
          const std::string shared = fmt::format("constexpr int kSharedBytes = {};\n", stage.config.sharedBytes);
          CHECK(source.flattened().find(shared) != std::string::npos);
        }
      }
}

TEST_CASE("tiles of kernels that walk lists lie in one block, which is a power of two of steps", "[plan]") {
  const Mod causal = mod("q_idx >= kv_idx");
  for (const plan::FamilyRow* row : plan::families())
    for (DType dtype : {DType::BF16, DType::F32})
      for (int headDim : {8, 64, 128, 192, 256})
        for (int qBlock : {64, 128, 256})
          for (int kvBlock : {64, 128, 256}) {
            if (row->kind == KernelKind::BlockMask) continue;
            auto plan = test::choosePlan(causal, {.kind = row->kind,
                                                  .family = row->family,
                                                  .arch = std::string(row->arch),
                                                  .dtype = dtype,
                                                  .headDim = headDim,
                                                  .blockSparse = true,
                                                  .maskQBlock = qBlock,
                                                  .maskKvBlock = kvBlock});
            if (!plan) continue; // the family says that it does not serve these
            INFO(familyName(row->family) << ", head dim " << headDim << ", blocks " << qBlock << " x " << kvBlock);
            for (const plan::Stage& stage : plan->stages) {
              const auto isPowerOfTwo = [](int x) { return x > 0 && (x & (x - 1)) == 0; };
              CHECK(stage.config.blockSparse);
              if (stage.templateName.rfind("backward_large.", 0) == 0) continue; // walks lists in steps of 32
              for (auto [tile, block] : {std::pair{stage.config.blockM, qBlock}, {stage.config.blockN, kvBlock}}) {
                if (tile == 0) continue; // no tile along this axis
                CHECK(block % tile == 0);
                CHECK(isPowerOfTwo(block / tile));
              }
            }
          }
}

TEST_CASE("a stage has a CTA for each tile, or as many as run at once", "[plan]") {
  const plan::Device device{.multiprocessors = 132};
  const KernelOptions options{.arch = "sm_90a", .headDim = 128};
  const plan::Stage persistent = test::planOf(Mod::identity(), options).stages.front();
  CHECK(plan::ctasOf(persistent, launchOf(1), device) == 2 * 8);
  CHECK(plan::ctasOf(persistent, launchOf(129), device) == 2 * 2 * 8);
  CHECK(plan::ctasOf(persistent, launchOf(5000), device) == 132);
  CHECK(plan::ctasOf(persistent, launchOf(0), device) == 0);

  KernelOptions older = options;
  older.arch = "sm_80";
  const plan::Stage stage = test::planOf(Mod::identity(), older).stages.front();
  CHECK(plan::ctasOf(stage, launchOf(5000), device) ==
        2 * 8 * ((5000 + stage.config.blockM - 1) / stage.config.blockM));

  const BlockMaskShape shape{.batch = 2, .heads = 3, .qLen = 300, .kvLen = 500};
  std::vector<int32_t> storage(BlockMask::storageBytes(shape) / 4);
  auto mask = take(plan::checkBlockMask(Mod::identity().module(), BlockMask::viewInto(storage.data(), shape),
                                        {2, 3, 3, 300, 500}, {}));
  const plan::Stage builder =
      test::planOf(Mod::identity(), {.kind = KernelKind::BlockMask, .arch = "sm_80"}).stages.front();
  CHECK(plan::ctasOf(builder, mask, device) == 2 * 3 * 3);
}

TEST_CASE("a family's stage fills the parameters of its template", "[plan]") {
  const plan::Stage stage = test::planOf(Mod::identity(), {.arch = "sm_80", .headDim = 128}).stages.front();
  auto block = take(stage.parameters(stage, launchOf(100), {}, kNoWorkspace));
  CHECK(block.as<ForwardParams>().q_len == 100);

  const BlockMaskShape shape{.batch = 1, .heads = 1, .qLen = 300, .kvLen = 500, .qBlock = 64, .kvBlock = 256};
  std::vector<int32_t> storage(BlockMask::storageBytes(shape) / 4);
  const BlockMaskView lists = BlockMask::viewInto(storage.data(), shape);
  auto mask = take(plan::checkBlockMask(Mod::identity().module(), lists, {2, 3, 3, 300, 500}, {}));
  const plan::Stage builder =
      test::planOf(Mod::identity(), {.kind = KernelKind::BlockMask, .arch = "sm_80"}).stages.front();
  auto filled = take(builder.parameters(builder, mask, {}, kNoWorkspace));
  const auto& params = filled.as<BlockMaskParams>();
  CHECK(params.partial_index == lists.partialIndex);
  CHECK(params.full_count == lists.fullCount);
  CHECK(params.kv_block == 256);
}

TEST_CASE("a block-mask kernel lists blocks by column in a launch of its own, if it is asked to", "[plan]") {
  const Mod causal = mod("q_idx >= kv_idx");
  KernelOptions options{.kind = KernelKind::BlockMask, .arch = "sm_80"};
  REQUIRE(test::planOf(causal, options).stages.size() == 1);
  options.columnLists = true;
  const plan::Plan plan = test::planOf(causal, options);
  REQUIRE(plan.stages.size() == 2);
  CHECK(plan.stages[0].entry == "attnc_block_mask");
  const plan::Stage& byColumn = plan.stages[1];
  CHECK(byColumn.entry == "attnc_block_mask_columns");

  const BlockMaskShape shape{.batch = 2, .heads = 3, .qLen = 300, .kvLen = 500, .qBlock = 64, .kvBlock = 128};
  constexpr BlockMask::Lists kBoth = BlockMask::Lists::ByRowAndColumn;
  std::vector<int32_t> storage(BlockMask::storageBytes(shape, kBoth) / 4);
  const BlockMaskView lists = BlockMask::viewInto(storage.data(), shape, kBoth);
  auto mask = take(plan::checkBlockMask(causal.module(), lists, {2, 3, 3, 300, 500}, options));
  CHECK(plan::ctasOf(byColumn, mask, {}) == 2 * 3 * 4 / byColumn.config.warps);
  CHECK(byColumn.threads == 32 * byColumn.config.warps);
  auto filled = take(byColumn.parameters(byColumn, mask, {}, kNoWorkspace));
  const auto& params = filled.as<BlockMaskParams>();
  CHECK(params.partial_count == lists.partialCount);
  CHECK(params.column_partial_count == lists.columns.partialCount);
  CHECK(params.column_partial_index == lists.columns.partialIndex);
  CHECK(params.column_full_count == lists.columns.fullCount);
  CHECK(params.column_full_index == lists.columns.fullIndex);
}

TEST_CASE("lists that a block-mask kernel cannot fill are refused", "[plan]") {
  constexpr BlockMask::Lists kBoth = BlockMask::Lists::ByRowAndColumn;
  BlockMaskShape shape{.batch = 1, .heads = 1, .qLen = 300, .kvLen = 500};
  std::vector<int32_t> storage(BlockMask::storageBytes(shape, kBoth) / 4);
  KernelOptions options{.kind = KernelKind::BlockMask};
  BlockMaskView lists = BlockMask::viewInto(storage.data(), shape);
  ProblemShape problem{2, 3, 3, 300, 500};
  Mod causal = mod("q_idx >= kv_idx");
  const auto errorOf = [&] {
    return environmentErrorOf(plan::checkBlockMask(causal.module(), lists, problem, options));
  };
  REQUIRE(plan::checkBlockMask(causal.module(), lists, problem, options));
  SECTION("lengths") {
    problem.kvLen = 501;
    CHECK(errorOf() == "block mask: its lengths are 300 x 500, those of the problem 300 x 501");
  }
  SECTION("compacted") {
    lists.indexStride = 2;
    CHECK(errorOf() == "block mask: its storage is compacted, expected room for every block");
  }
  SECTION("no full lists") {
    lists.fullCount = lists.fullIndex = nullptr;
    CHECK(errorOf() == "block mask: fullCount and fullIndex must not be null, for they are written");
  }
  SECTION("no lists") {
    lists.partialIndex = nullptr;
    CHECK(errorOf() == "block mask: partialCount and partialIndex must not be null");
  }
  SECTION("blocks") {
    lists.shape.kvBlock = 512;
    CHECK(errorOf() == "block mask: blocks of 128 x 512 are not supported");
  }
  SECTION("lists by column that the kernel does not write") {
    lists = BlockMask::viewInto(storage.data(), shape, kBoth);
    CHECK(errorOf() == "block mask: it has lists by column, which the kernel was compiled without");
  }
  SECTION("no lists by column") {
    options.columnLists = true;
    CHECK(errorOf() == "block mask: it has no lists by column, which the kernel was compiled for");
  }
  SECTION("lists by column") {
    options.columnLists = true;
    lists = BlockMask::viewInto(storage.data(), shape, kBoth);
    CHECK(plan::checkBlockMask(causal.module(), lists, problem, options));
    SECTION("compacted") {
      lists.columns.indexStride = 2;
      CHECK(errorOf() == "block mask: its storage is compacted, expected room for every block");
    }
    SECTION("without full ones") {
      lists.columns.fullCount = lists.columns.fullIndex = nullptr;
      CHECK(errorOf() == "block mask: fullCount and fullIndex must not be null, for they are written");
    }
    SECTION("without indices") {
      lists.columns.partialIndex = nullptr;
      CHECK(errorOf() == "block mask: columns.partialCount and columns.partialIndex must not be null");
    }
  }
  SECTION("a mask for all heads of a mod that tells them apart") {
    causal = mod("q_idx >= kv_idx + h");
    CHECK(errorOf() == "block mask: heads is 1, but mask_mod depends on h");
  }
}

TEST_CASE("a workspace is divided among its uses, by the operands of a launch", "[plan]") {
  using Zeroed = plan::WorkspaceUse::Zeroed;
  constexpr auto kRowBytes = [](const plan::LaunchOperands& operands) { return size_t(operands.problem.qLen) * 12; };
  const plan::WorkspaceUse counters{
      .use = plan::Use::Counters, .bytes = [](const plan::LaunchOperands&) { return size_t(8); }, .isOptional = true};
  const plan::WorkspaceUse rows{.use = plan::Use::Lists, .bytes = kRowBytes, .zeroed = Zeroed::EveryLaunch};
  alignas(256) char memory[2048];

  const plan::WorkspaceLayout both({counters, rows}, launchOf(100));
  CHECK(both.bytes() == 256 + 1200);
  const plan::WorkspaceView view{both, memory};
  CHECK(view.at(plan::Use::Counters) == memory);
  CHECK(view.at(plan::Use::Lists) == memory + 256);
  CHECK(both.find(plan::Use::Lists)->use.zeroed == Zeroed::EveryLaunch);
  CHECK(plan::checkWorkspace(view));
  CHECK(plan::WorkspaceLayout({counters, rows}, launchOf(17)).bytes() == 256 + 204);

  // What takes nothing is not there, and what is optional need not be given.
  const plan::WorkspaceLayout empty({counters, rows}, launchOf(0));
  CHECK(empty.bytes() == 8);
  CHECK_FALSE(empty.find(plan::Use::Lists));
  CHECK(plan::checkWorkspace({empty, nullptr}));
  CHECK(plan::WorkspaceView{empty, nullptr}.at(plan::Use::Counters) == nullptr);

  const auto errorOf = [&](void* given) { return refusalOf(plan::checkWorkspace({both, given})).message; };
  CHECK(errorOf(nullptr) == "the workspace is null, expected 1456 bytes");
  CHECK(errorOf(memory + 16) == "the workspace does not begin at a multiple of 256 bytes");
}

TEST_CASE("a launch of more tiles than kernels count is refused", "[plan]") {
  const auto refusal = [](const Mod& m, KernelOptions options, const Operands& given) -> std::string {
    options.dtype = DType::BF16;
    options.headDim = options.headDimV = 8;
    const plan::Plan plan = test::planOf(m, options);
    BackwardOperands operands;
    static_cast<Operands&>(operands) = given;
    operands.out = operands.dOut = given.q;
    const auto& q = given.q.shape;
    operands.lse = TensorView::contiguous(kSomewhere, DType::F32, {q[0], q[1], q[2]});
    auto launch = take(options.kind == KernelKind::Backward
                           ? plan::checkBackward(operands, {.dQ = given.q, .dK = given.k, .dV = given.v}, options)
                           : plan::checkForward(given, {.out = given.q}, options));
    if (plan.grid) launch.grids = plan::gridsOf(*plan.grid, launch.problem);
    const Status status = plan::checkTileCounts(plan, launch);
    return status ? "" : status.error().message;
  };
  const auto operandsOf = [](int64_t batch, int64_t heads, int64_t kvHeads, int64_t qLen, int64_t kvLen) {
    const TensorView k = tensor(1, kvHeads, kvLen, 8);
    return Operands{.q = tensor(batch, heads, qLen, 8), .k = k, .v = k};
  };
  const std::string tooMany = " tiles of all heads and batch entries are more than a kernel counts, 2146435072";
  const Mod plain = Mod::identity();
  for (const plan::FamilyRow* row : plan::families()) {
    if (row->kind == KernelKind::BlockMask || row->walksBoxes) continue;
    const KernelOptions options{.kind = row->kind, .family = row->family, .arch = std::string(row->arch)};
    INFO(int(row->kind) << ", " << familyName(row->family));
    CHECK(refusal(plain, options, operandsOf(1 << 20, 1 << 11, 1 << 11, 1, 16)) == "2147483648" + tooMany);
    CHECK(refusal(plain, options, operandsOf(1 << 20, 1 << 10, 1 << 10, 1, 16)) == "");
    const bool isDecode = row->kind == KernelKind::Decode; // 2048 heads of q are 32 tiles or more of one KV head
    CHECK(refusal(plain, options, operandsOf(1 << 20, 1 << 11, 1, 1, 16)).empty() == isDecode);
    CHECK_FALSE(refusal(plain, options, operandsOf(1 << 24, 1 << 24, 1 << 24, 1 << 24, 16)).empty());
    if (!isDecode) continue;
    KernelOptions ragged = options;
    ragged.features = {Feature::Ragged};
    for (int64_t rows : {(1 << 24) - (1 << 13), 1 << 24}) { // 128 heads of q share a KV head
      Operands sequences = operandsOf(1, 128, 1, rows, rows);
      sequences.cuSeqlensQ = TensorView::contiguous(kSomewhere, DType::I32, {3});
      CHECK(refusal(plain, ragged, sequences).empty() == (rows < 1 << 24));
    }
  }
  const Mod onGrid = test::mod(test::kNeighborhood);
  for (KernelKind kind : {KernelKind::Forward, KernelKind::Backward})
    for (const char* arch : {"sm_80", "sm_90a"}) {
      const KernelOptions options{.kind = kind, .family = Family::Grid, .arch = arch};
      INFO(int(kind) << ", " << arch);
      CHECK_THAT(refusal(onGrid, options, operandsOf(1 << 20, 1 << 11, 1 << 11, 1000, 3000)), Catch::EndsWith(tooMany));
      CHECK(refusal(onGrid, options, operandsOf(1 << 10, 1 << 11, 1 << 11, 1000, 3000)) == "");
    }
}

TEST_CASE("a decode kernel's steps are divided as long as they can be counted", "[plan]") {
  for (int64_t batch : {1 << 8, 1 << 15}) {
    Operands operands{.q = tensor(batch, 1, 1, 8), .k = tensor(1, 1, 1 << 24, 8), .v = tensor(1, 1, 1 << 24, 8)};
    const KernelOptions options{.kind = KernelKind::Decode, .arch = "sm_80", .headDim = 8, .headDimV = 8};
    const plan::Plan plan = test::planOf(Mod::identity(), options);
    auto launch = take(plan::checkForward(operands, {.out = operands.q}, options));
    const plan::Stage& stage = plan.stages.front();
    const plan::WorkspaceLayout layout(plan.workspace, launch);
    auto params = take(stage.parameters(stage, launch, {.multiprocessors = 132}, {layout, kSomewhere}));
    CHECK((params.as<DecodeParams>().part_out != nullptr) == (batch == 1 << 8));
  }
}

TEST_CASE("strides and addresses of empty tensors mean nothing", "[plan]") {
  const auto empty = [](TensorView tensor) {
    tensor.data = nullptr;
    tensor.shape[2] = 0;
    for (int64_t& stride : tensor.stride) stride = 7;
    return tensor;
  };
  const TensorView some = tensor(2, 2, 300, 64), none = empty(some);
  const TensorView lse = TensorView::contiguous(kSomewhere, DType::F32, {2, 2, 300});
  for (bool noQueries : {true, false}) {
    const TensorView &q = noQueries ? none : some, &kv = noQueries ? some : none;
    BackwardOperands operands;
    operands.q = operands.out = operands.dOut = q;
    operands.k = operands.v = kv;
    operands.lse = noQueries ? empty(lse) : lse;
    operands.dLse = operands.lse;
    const KernelOptions options{.kind = KernelKind::Backward, .headDim = 64, .headDimV = 64};
    const auto checked = take(plan::checkBackward(operands, {.dQ = q, .dK = kv, .dV = kv}, options));
    CHECK(plan::somewhereIn(checked) == kSomewhere);
  }
}
