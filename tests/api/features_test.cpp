// Features: what operands and options need, and what families refuse.
#include "attnc/attnc.h"
#include "plan/catalog.h"

#include <catch2/catch.hpp>

#include <map>
#include <set>

using namespace attnc;
using Catch::Contains;

namespace {

/// Returns the options of a request for one feature, with what the feature needs.
KernelOptions optionsWith(Feature feature, KernelKind kind, Family family, std::string_view arch) {
  KernelOptions options{.kind = kind, .family = family, .arch = std::string(arch), .headDim = 64};
  options.features = Features{feature} & kOptionFeatures;
  switch (feature) {
  case Feature::Offsets:
    options.offsets = QueryOffsets::Tensor, options.features.set(Feature::Ragged, kind == KernelKind::Backward);
    break;
  case Feature::Pages: options.features.set(Feature::Lengths), options.pageSize = 16; break;
  case Feature::Appends: options.features.set(Feature::Lengths); break;
  case Feature::Fp8Kv: options.arch = options.arch == "sm_80" ? "sm_89" : options.arch; break;
  case Feature::BlockMask: options.blockSparse = true; break;
  case Feature::BoxMask: options.blockSparse = options.maskByBoxes = true; break;
  case Feature::F32: options.dtype = DType::F32; break;
  case Feature::Gradients: options.gradients = {"slopes"}; break;
  case Feature::Lengths:
  case Feature::Ragged:
  case Feature::RowMax:
  case Feature::Deterministic: break;
  }
  return options;
}

Features all() {
  Features features;
#define ATTNC_FEATURE(name, option, text) features.set(Feature::name);
#include "attnc/features.def"
  return features;
}

} // namespace

TEST_CASE("each feature that a family does not take is refused, and each that it takes is not", "[api][features]") {
  const Compiler compiler({.cacheMode = CompilerOptions::CacheMode::Off});
  const std::string neighborhood = "from attnc import grid\nslopes: f32[H]\nimage = grid(64, 64)\n"
                                   "def score_mod(score, b, h, q, k):\n  return score + slopes[h]\n"
                                   "def mask_mod(b, h, q, k):\n"
                                   "  (qy, qx), (ky, kx) = image.coords(q), image.coords(k)\n"
                                   "  return (abs(qy - ky) <= 4) & (abs(qx - kx) <= 4)\n";
  const auto mod = Mod::parse(neighborhood);
  if (!mod) FAIL(mod.error().message);
  int refused = 0;
  for (auto [kind, families] : {std::pair(KernelKind::Forward, forwardFamilies()),
                                {KernelKind::Backward, backwardFamilies()},
                                {KernelKind::Decode, decodeFamilies()}})
    for (const FamilyInfo& info : families)
      all().forEach([&, kind = kind](Feature feature) {
        if (kind != KernelKind::Backward && (feature == Feature::Gradients || feature == Feature::Deterministic))
          return;
        if (kind == KernelKind::Backward && feature == Feature::RowMax) return; // not read
        const KernelOptions options = optionsWith(feature, kind, info.family, info.arch);
        const auto source = compiler.source(*mod, options);
        INFO(int(kind) << " " << familyName(info.family) << " " << info.arch << ": " << featureText(feature));
        // Pages and new rows come with lengths, which may be what is refused first.
        const std::string message = source ? "" : source.error().message;
        const bool isRefused =
            message.find("takes no ") != std::string::npos || message.find(" take no ") != std::string::npos;
        CHECK(isRefused == !info.takes.has(feature));
        refused += isRefused;
      });
  CHECK(refused > 40);
}

TEST_CASE("each tensor of operands has a row, and needs the feature that the row names", "[api][features]") {
  Operands operands;
  operands.q.dtype = operands.k.dtype = DType::BF16;
  std::set<const void*> rows;
  forEachOptional(operands, [&](const char* name, std::optional<TensorView>& tensor, Feature feature) {
    INFO(name);
    CHECK(rows.insert(&tensor).second);
    CHECK(featuresOf(operands).empty());
    tensor.emplace();
    CHECK(featuresOf(operands) == Features{feature});
    tensor.reset();
  });
  CHECK(rows.size() > 8);
  operands.q.dtype = DType::F32;
  operands.k.dtype = DType::E4M3;
  CHECK(featuresOf(operands) == Features{Feature::F32, Feature::Fp8Kv});
}

TEST_CASE("a feature that another option implies is not asked for by the set of features", "[api][features]") {
  const Compiler compiler({.cacheMode = CompilerOptions::CacheMode::Off});
  const auto refused = compiler.source(Mod::identity(), {.arch = "sm_90a", .features = {Feature::Pages}});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == "KernelOptions::features holds pages");
  CHECK(refused.error().remedy == "KernelOptions::pageSize asks for these");
}
