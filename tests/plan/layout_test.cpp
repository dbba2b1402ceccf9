// Which kernel serves which layout, asked before anything is loaded. Needs no GPU: the arch is given.
#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "families/catalog.h"
#include "families/family.h"
#include "helpers/plan_parts.h"

#include <catch2/catch.hpp>

#include <array>

using namespace attnc;

namespace {

TensorView tensor(int64_t batch, int64_t heads, int64_t length, int64_t dim, DType dtype = DType::BF16) {
  return TensorView::contiguous(nullptr, dtype, {batch, heads, length, dim});
}

/// What a launch is given, inputs and outputs.
struct Arguments : Operands, Outputs {
  std::array<TensorView*, 4> views() { return {&q, &k, &v, &*out}; }
};

Arguments arguments(DType dtype = DType::BF16) {
  return {{.q = tensor(2, 8, 100, 64, dtype), .k = tensor(2, 2, 300, 64, dtype), .v = tensor(2, 2, 300, 32, dtype)},
          {.out = tensor(2, 8, 100, 32, dtype)}};
}

KernelOptions options(Family family = Family::Auto) {
  return {.family = family, .arch = "sm_90a", .headDim = 64, .headDimV = 32};
}

Mod mod(const char* text) { return take(Mod::parse(text)); }

Preparation settledFor(const Arguments& args, Family family = Family::Auto, const char* arch = "sm_90a") {
  return take(Compiler().settle(Mod::identity(), args, args, {.family = family, .arch = arch}));
}

std::string errorFor(const Arguments& args, Family family = Family::Auto) {
  return environmentErrorOf(Compiler().settle(Mod::identity(), args, args, {.family = family, .arch = "sm_90a"}));
}

bool wantsMask(const Mod& m, const KernelOptions& asked) {
  return take(test::gainsFromBlockMask(Compiler(), m, asked));
}

void* address(uintptr_t value) { return reinterpret_cast<void*>(value); }

} // namespace

TEST_CASE("a layout that tensor maps describe goes to the sm90 family", "[api]") {
  Arguments args = arguments();
  SECTION("dense") {}
  SECTION("heads last") {
    for (TensorView* view : args.views()) {
      view->stride[2] = view->shape[1] * view->shape[3];
      view->stride[1] = view->shape[3];
    }
  }
  SECTION("a broadcast batch, by shape or by stride") {
    args.k = tensor(1, 2, 300, 64);
    args.v = tensor(1, 2, 300, 32);
    args.q.stride[0] = 0;
  }
  SECTION("strides that nothing is stepped by") {
    args = {{.q = tensor(1, 8, 1, 64), .k = tensor(1, 1, 9, 64), .v = tensor(1, 1, 9, 32)},
            {.out = tensor(1, 8, 1, 32)}};
    args.q.stride[0] = args.q.stride[2] = -3;
    args.k.stride[1] = 0;
    args.out->stride[0] = 1;
  }
  SECTION("no keys") {
    args.k = tensor(2, 2, 0, 64);
    args.v = tensor(2, 2, 0, 32);
    args.v.data = address(2);
  }
  SECTION("addresses at multiples of 16 bytes") {
    args.q.data = address(0x1010);
    args.out->data = address(0x2000);
  }
  const Preparation settled = settledFor(args);
  CHECK(settled.kernel.options().family == Family::Sm90);
  CHECK(settled.kernel.passedOver().empty());
}

TEST_CASE("a layout that tensor maps cannot describe goes to the sm80 family", "[api]") {
  Arguments args = arguments();
  std::string why;
  SECTION("rows") {
    args.k.stride[2] = 65;
    why = "k has a row stride of 65, sm90 takes multiples of 8 (16 bytes) above 0 and below 2^40 bytes";
  }
  SECTION("heads") {
    args.v.stride[1] = 0;
    why = "v has a head stride of 0, sm90 takes multiples of 8 (16 bytes) above 0 and below 2^40 bytes";
  }
  SECTION("batch") {
    args.q.stride[0] = -8 * 100 * 64;
    why = "q has a batch stride of -51200, sm90 takes multiples of 8 (16 bytes) above 0 and below 2^40 bytes";
  }
  SECTION("far apart") {
    args.k.stride[1] = int64_t(1) << 39;
    why = "k has a head stride of 549755813888, sm90 takes multiples of 8 (16 bytes) above 0 and below 2^40 bytes";
  }
  SECTION("output") {
    args.out->stride[2] = 36;
    why = "out has a row stride of 36, sm90 takes multiples of 8 (16 bytes) above 0 and below 2^40 bytes";
  }
  SECTION("output backwards") {
    args.out->stride[2] = -32;
    why = "out has a row stride of -32, sm90 takes multiples of 8 (16 bytes) above 0 and below 2^40 bytes";
  }
  SECTION("address") {
    args.v.data = address(0x1008);
    why = "v does not begin at a multiple of 16 bytes";
  }
  const Preparation settled = settledFor(args);
  CHECK(settled.kernel.options().family == Family::Sm80);
  CHECK(settled.kernel.options().arch == "sm_90a");
  CHECK(settled.kernel.passedOver() == why);

  CHECK(errorFor(args, Family::Sm90) == why);
  for (Family family : {Family::Naive, Family::Sm80}) {
    CHECK(settledFor(args, family).kernel.options().family == family);
    CHECK(settledFor(args, family).kernel.passedOver().empty());
  }
  CHECK(settledFor(args, Family::Auto, "sm_80").kernel.passedOver().empty());

  // A launch says the same, before it asks the driver. Rows of an output that overlap are refused before that.
  if (args.out->stride[2] != 64) return;
  for (TensorView* view : args.views())
    if (!view->data) view->data = address(0x10000);
  auto checked = take(plan::checkForward(args, args, options(Family::Sm90)));
  auto plan = take(plan::planOf(take(plan::selectFamily(std::make_shared<plan::KernelMod>(), options(Family::Sm90)))));
  const plan::Stage& stage = plan.stages.front();
  CHECK(refusalOf(stage.parameters(stage, checked, {}, {plan::WorkspaceLayout({}, {}), nullptr})).message == why);
}

TEST_CASE("any layout of fp32 stays with the family that serves fp32", "[api]") {
  Arguments args = arguments(DType::F32);
  args.q.stride[2] = 65;
  const Preparation dense = settledFor(arguments(DType::F32)), settled = settledFor(args);
  CHECK(settled.kernel.options().family == dense.kernel.options().family);
  CHECK(settled.kernel.passedOver() == dense.kernel.passedOver());
}

TEST_CASE("operands that do not fit are refused before a kernel is chosen", "[api]") {
  Arguments args = arguments();
  SECTION("shape") {
    args.v = tensor(2, 2, 299, 32);
    CHECK(errorFor(args) == "v has shape [2, 2, 299, 32], expected [2, 2, 300, 32]");
  }
  SECTION("dtype") {
    args.k.dtype = DType::F16;
    CHECK(errorFor(args) == "k is f16, expected bf16, which the kernel was compiled for");
  }
}

TEST_CASE("a block mask pays where the kernel does not bound its loops by itself", "[api]") {
  const Mod causal = mod("q_idx >= kv_idx"), document = mod("ids: i32[KV_LEN]\nids[q_idx] == ids[kv_idx]");
  for (Family family : {Family::Sm80, Family::Sm90}) {
    CHECK_FALSE(wantsMask(causal, options(family)));
    CHECK(wantsMask(document, options(family)));
    CHECK_FALSE(wantsMask(Mod::identity(), options(family)));
  }
  CHECK(wantsMask(causal, options(Family::Naive)));
}

TEST_CASE("a mask in a score_mod is planned like one in a mask_mod", "[api]") {
  const std::string ids = "ids: i32[KV_LEN]\n";
  for (const std::string condition : {"q_idx >= kv_idx", "ids[q_idx] == ids[kv_idx]"}) {
    const Mod mask = mod((ids + condition).c_str());
    const Mod score = mod((ids + "where(" + condition + ", score, -inf)").c_str());
    CHECK(score.hasMaskMod());
    for (Family family : {Family::Sm80, Family::Sm90}) {
      const KernelOptions asked = options(family);
      CHECK(wantsMask(score, asked) == wantsMask(mask, asked));
      auto a = take(test::choosePlan(score, asked)), b = take(test::choosePlan(mask, asked));
      const codegen::Config &x = a.stages.front().config, &y = b.stages.front().config;
      CHECK(x.blockM == y.blockM);
      CHECK(x.blockN == y.blockN);
      CHECK(x.kvStages == y.kvStages);
    }
  }
}

TEST_CASE("a pin that makes bounds of a mask makes a block mask needless", "[api]") {
  // Without the sign of `step`, nothing says which way the mask's edge runs.
  const Mod stepped = mod("step: int\ndef mask_mod(b, h, q_idx, kv_idx):\n    return q_idx * step >= kv_idx\n");
  KernelOptions asked = options();
  CHECK(wantsMask(stepped, asked));
  asked.pins = {{"step", 2}};
  CHECK_FALSE(wantsMask(stepped, asked));
}
