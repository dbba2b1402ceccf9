// K and V in pages, as far as the host has to do with them: what is asked for, what is refused, what a launch is told.
// Needs no GPU.
#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "families/catalog.h"
#include "families/family.h"
#include "helpers/plan_parts.h"
#include "templates/params_decode.cuh"

#include <catch2/catch.hpp>

using namespace attnc;

namespace {

// Never read: checks only look at shapes and addresses.
void* const kSomewhere = reinterpret_cast<void*>(0x1000);

TensorView tensor(std::initializer_list<int64_t> shape, DType dtype = DType::BF16) {
  return TensorView::contiguous(kSomewhere, dtype, shape);
}

/// What a launch is given, inputs and outputs: 3 sequences of up to 40 pages of 16 rows, of a pool of 50.
struct Arguments : Operands, Outputs {
  Arguments()
      : Operands{.q = tensor({3, 8, 4, 64}), .k = tensor({50, 2, 16, 64}), .v = tensor({50, 2, 16, 32})},
        Outputs{.out = tensor({3, 8, 4, 32})} {
    kvLengths = tensor({3}, DType::I32);
    pageTable = tensor({3, 40}, DType::I32);
  }
};

KernelOptions options(int pageSize = 16) {
  return {.arch = "sm_90a",
          .headDim = 64,
          .headDimV = 32,
          .features = {Feature::Lengths},
          .offsets = QueryOffsets::FromLengths,
          .pageSize = pageSize};
}

plan::LaunchOperands launchOf(const Arguments& args, const KernelOptions& o = options()) {
  return take(plan::checkForward(args, args, o));
}

std::string errorOf(const Arguments& args, const KernelOptions& o = options()) {
  return environmentErrorOf(plan::checkForward(args, args, o));
}

Expected<Preparation> settled(const Arguments& args, const PrepareOptions& asked = {.arch = "sm_90a"}) {
  return Compiler().settle(Mod::identity(), args, args, asked);
}

std::string settleError(const Arguments& args, const PrepareOptions& asked = {.arch = "sm_90a"}) {
  return environmentErrorOf(settled(args, asked));
}

const plan::WorkspaceLayout kNothing({}, {});
const plan::WorkspaceView kNoWorkspace{kNothing};

} // namespace

TEST_CASE("a page table tells how long sequences may be, and a pool where they lie", "[api]") {
  Arguments args;
  const plan::LaunchOperands launch = launchOf(args);
  CHECK(launch.problem == ProblemShape{3, 8, 2, 4, 640});
  const ForwardParams p = plan::forwardParams(launch);
  CHECK(p.kv_len == 640);
  CHECK(p.k_stride.batch == 2 * 16 * 64); // of a page
  CHECK(p.k_stride.row == 64);
  SECTION("heads last") {
    args.k = tensor({50, 16, 2, 64});
    std::swap(args.k.shape[1], args.k.shape[2]);
    std::swap(args.k.stride[1], args.k.stride[2]);
    const ForwardParams swapped = plan::forwardParams(launchOf(args));
    CHECK(swapped.k_stride.row == 2 * 64);
    CHECK(swapped.k_stride.head == 64);
  }
  SECTION("a table that is a part of a larger one") {
    args.pageTable->stride[0] = 100;
    CHECK(plan::cacheParams(launchOf(args)).table_stride == 100);
  }
  SECTION("an empty one") {
    args.pageTable = TensorView::contiguous(nullptr, DType::I32, {3, 0});
    CHECK(launchOf(args).problem.kvLen == 0);
  }
}

TEST_CASE("a page table that does not fit is refused by name", "[api]") {
  Arguments args;
  SECTION("missing") {
    args.pageTable.reset();
    CHECK(errorOf(args) == "the kernel was compiled for page_table, which is not given");
  }
  SECTION("not asked for") {
    CHECK(errorOf(args, options(0)) == "page_table is given to a kernel that was compiled without");
  }
  SECTION("null") {
    args.pageTable->data = nullptr;
    CHECK(errorOf(args) == "page_table is null, expected device memory");
  }
  SECTION("dtype") {
    args.pageTable->dtype = DType::I64;
    CHECK(errorOf(args) == "page_table is i64 [3, 40], expected i32 [3, pages of a sequence]");
  }
  SECTION("batch") {
    args.pageTable = tensor({2, 40}, DType::I32);
    CHECK(errorOf(args) == "page_table is i32 [2, 40], expected i32 [3, pages of a sequence]");
  }
  SECTION("rank") {
    args.pageTable = tensor({120}, DType::I32);
    CHECK(errorOf(args) == "page_table is i32 [120], expected i32 [3, pages of a sequence]");
  }
  SECTION("gaps between entries") {
    args.pageTable->stride[1] = 2;
    CHECK(errorOf(args) == "page_table has last stride 2, expected 1");
  }
  SECTION("pages of another size") {
    CHECK(errorOf(args, options(32)) == "k has pages of 16 rows, expected 32, which the kernel was compiled for");
  }
  SECTION("v of another pool") {
    args.v = tensor({49, 2, 16, 32});
    CHECK(errorOf(args) == "v has shape [49, 2, 16, 32], expected [50, 2, 16, 32]");
  }
  SECTION("heads") {
    args.k = tensor({50, 3, 16, 64});
    CHECK(errorOf(args) == "k has 3 heads, expected a divisor of q's 8");
  }
  SECTION("length") {
    args.pageTable = tensor({3, (int64_t(1) << 20) + 1}, DType::I32);
    CHECK(errorOf(args) == "page_table has length 16777232, expected at most 16777216");
  }
  SECTION("no lengths") {
    args.kvLengths.reset();
    CHECK(settleError(args) == "pages need KV lengths of sequences, and none are given");
  }
  SECTION("a page size that there is not") {
    args.k = tensor({50, 2, 24, 64});
    args.v = tensor({50, 2, 24, 32});
    CHECK(settleError(args) == "k has pages of 24 rows, expected one of 1, 2, 4, 8, 16, 32, 64, 128, 256");
  }
}

TEST_CASE("kernels for pages are others, and only forward and decode ones", "[api]") {
  const Mod identity = Mod::identity();
  const auto refusal = [&](const KernelOptions& o) {
    return environmentErrorOf(test::sourcesOf(Compiler(), identity, o));
  };
  KernelOptions o = options(24);
  CHECK(refusal(o) == "pages of 24 rows are not supported");
  o = options();
  o.features = {};
  CHECK(refusal(o) == "pages need KV lengths of sequences, and none are given");
  o = {.kind = KernelKind::Backward, .arch = "sm_90a", .pageSize = 16};
  CHECK(refusal(o) == "backward kernels take no pages");
  o.kind = KernelKind::BlockMask;
  CHECK(refusal(o) == "pages need KV lengths of sequences, and none are given");
  const auto textOf = [&](int pageSize) {
    auto source = take(test::sourcesOf(Compiler(), identity, options(pageSize)));
    return source.front().flattened();
  };
  CHECK(textOf(16).find("constexpr int kPageSize = 16;") != std::string::npos);
  CHECK(textOf(0).find("constexpr int kPageSize = 0;") != std::string::npos);
}

TEST_CASE("prepare takes the page size from the pool", "[api]") {
  Arguments args;
  auto preparation = take(settled(args));
  CHECK(preparation.kernel.options().pageSize == 16);
  CHECK(preparation.kernel.options().features.has(Feature::Lengths));
  CHECK(preparation.kernel.options().offsets == QueryOffsets::FromLengths);
  CHECK(preparation.kernel.options().kind == KernelKind::Decode);
  CHECK(preparation.problem.kvLen == 640);
  args.pageTable.reset();
  CHECK(settleError(args) == "k has batch 50, expected 3 as q, or 1");
}

TEST_CASE("pages of one row go to sm80, and so does a pool whose pages lie in one place", "[api]") {
  Arguments args;
  PrepareOptions forward{.arch = "sm_90a", .decode = false};
  CHECK(settled(args, forward)->kernel.options().family == Family::Sm90);
  CHECK(settled(args, forward)->kernel.passedOver().empty());
  args.k.stride[0] = 0;
  CHECK(settled(args, forward)->kernel.options().family == Family::Sm80);
  CHECK(settled(args, forward)->kernel.passedOver() ==
        "k has a page stride of 0, sm90 takes multiples of 8 (16 bytes) above 0 and below 2^40 bytes");
  args.k = tensor({50, 2, 1, 64});
  args.v = tensor({50, 2, 1, 32});
  CHECK(settled(args, forward)->kernel.options().family == Family::Sm80);
  CHECK(settled(args, forward)->kernel.passedOver() == "sm90 takes pages of 8 rows and more");
}

TEST_CASE("a step's columns are whole pages or a part of one, in every family", "[api]") {
  for (const plan::FamilyRow* row : plan::families())
    for (int headDim : {8, 64, 128, 160, 192, 256})
      for (int pageSize : kPageSizes) {
        if (row->kind != KernelKind::Forward && row->kind != KernelKind::Decode) continue;
        auto plan = test::choosePlan(Mod::identity(), {.kind = row->kind,
                                                       .family = row->family,
                                                       .arch = std::string(row->arch),
                                                       .headDim = headDim,
                                                       .features = {Feature::Lengths},
                                                       .pageSize = pageSize});
        if (!plan) continue; // the family says that it does not serve these
        const int columns = plan->stages.front().config.blockN;
        INFO(familyName(row->family) << ", head dim " << headDim << ", pages of " << pageSize << ", steps of "
                                     << columns);
        CHECK((columns % pageSize == 0 || pageSize % columns == 0));
      }
}

TEST_CASE("a launch tells its kernel of the table", "[api]") {
  Arguments args;
  args.pageTable->data = reinterpret_cast<void*>(0x4000);
  const plan::LaunchOperands launch = launchOf(args);
  for (const plan::FamilyRow* row : {&plan::kForwardNaive, &plan::kForwardSm80, &plan::kDecodeSm80}) {
    KernelOptions o = options();
    o.kind = row->kind;
    o.family = row->family;
    auto plan = take(test::choosePlan(Mod::identity(), o));
    const plan::Stage& stage = plan.stages.front();
    auto params = take(stage.parameters(stage, launch, {.multiprocessors = 132}, kNoWorkspace));
    const bool isDecode = row->kind == KernelKind::Decode;
    const auto& forward = params.as<Cached<ForwardParams>>();
    const auto& decode = params.as<Cached<DecodeParams>>();
    const CacheParams& cache = isDecode ? decode.cache : forward.cache;
    CHECK(cache.page_table == args.pageTable->data);
    CHECK(cache.table_stride == 40);
    CHECK((isDecode ? decode.forward.kv_len : forward.kv_len) == 640);
  }
}

TEST_CASE("new rows must be given exactly where the kernel appends, and fit", "[api]") {
  Arguments args;
  KernelOptions o = options();
  args.newK = tensor({3, 2, 4, 64});
  args.newV = tensor({3, 2, 4, 32});
  CHECK(errorOf(args, o) == "new_k is given to a kernel that was compiled without");
  o.features.set(Feature::Appends);
  const CacheParams cache = plan::cacheParams(launchOf(args, o));
  CHECK(cache.new_k == kSomewhere);
  CHECK(cache.new_v_stride.head == 4 * 32);
  CHECK(plan::forwardParams(launchOf(args, o)).vectors == 1);
  SECTION("unaligned rows take the element-wise copies") {
    args.newV->stride[2] = 33;
    CHECK(plan::forwardParams(launchOf(args, o)).vectors == 0);
  }
  SECTION("one alone") {
    args.newV.reset();
    CHECK(errorOf(args, o) == "new_v is not given, expected both new_k and new_v, or neither");
  }
  SECTION("null") {
    args.newK->data = nullptr;
    CHECK(errorOf(args, o) == "new_k is null, expected device memory");
  }
  SECTION("shape") {
    args.newK = tensor({3, 2, 5, 64});
    CHECK(errorOf(args, o) == "new_k has shape [3, 2, 5, 64], expected [3, 2, 4, 64]");
  }
  SECTION("dtype") {
    args.newV->dtype = DType::F16;
    CHECK(errorOf(args, o) == "new_v is f16, expected bf16, which the kernel was compiled for");
  }
  SECTION("a cache that is broadcast") {
    args.pageTable.reset();
    args.k = tensor({1, 2, 640, 64});
    args.v = tensor({1, 2, 640, 32});
    o.pageSize = 0;
    CHECK(errorOf(args, o) == "k has batch 1, expected 3 as q, for rows are appended to it");
  }
  SECTION("no lengths") {
    args.kvLengths.reset();
    args.pageTable.reset();
    args.k = tensor({3, 2, 640, 64});
    args.v = tensor({3, 2, 640, 32});
    CHECK(settleError(args) == "rows that are appended need KV lengths of sequences, and none are given");
  }
}

TEST_CASE("forward plans append by a launch of their own, decode kernels by themselves", "[api]") {
  for (bool paged : {false, true}) {
    KernelOptions o = options(paged ? 16 : 0);
    o.features.set(Feature::Appends);
    for (const plan::FamilyRow* row :
         {&plan::kForwardNaive, &plan::kForwardSm80, &plan::kForwardSm90, &plan::kDecodeSm80, &plan::kDecodeSm90}) {
      o.kind = row->kind;
      o.family = row->family;
      auto plan = take(test::choosePlan(Mod::identity(), o));
      const bool isForward = row->kind == KernelKind::Forward;
      REQUIRE(plan.stages.size() == (isForward ? 2 : 1));
      CHECK(plan.stages.front().config.appends);
      if (!isForward) continue;
      CHECK_FALSE(plan.stages.back().config.appends);
      CHECK(plan.stages.front().entry == "attnc_append");
    }
    o.kind = KernelKind::Forward;
    o.family = Family::Sm80;
    Arguments args;
    args.newK = tensor({3, 2, 4, 64});
    args.newV = tensor({3, 2, 4, 32});
    if (!paged) {
      args.pageTable.reset();
      args.k = tensor({3, 2, 640, 64});
      args.v = tensor({3, 2, 640, 32});
    }
    auto plan = take(test::choosePlan(Mod::identity(), o));
    const plan::LaunchOperands launch = launchOf(args, o);
    CHECK(plan::ctasOf(plan.stages.front(), launch, {.multiprocessors = 132}) == 3 * 2);
    auto append = take(plan.stages.front().parameters(plan.stages.front(), launch, {}, kNoWorkspace));
    CHECK(append.as<Cached<ForwardParams>>().cache.new_v == kSomewhere);
    auto forward = take(plan.stages.back().parameters(plan.stages.back(), launch, {}, kNoWorkspace));
    CHECK(forward.size() == (paged ? sizeof(Cached<ForwardParams>) : sizeof(ForwardParams)));
  }
}
