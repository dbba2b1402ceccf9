// Features: what operands and options need, and what families refuse.
#include "attnc/attnc.h"
#include "families/catalog.h"
#include "helpers/plans.h"

#include <catch2/catch.hpp>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

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
  case Feature::RowScales: options.features.set(Feature::Fp8Q); [[fallthrough]];
  case Feature::Fp8Q: options.features.set(Feature::Fp8Kv); break;
  case Feature::BlockMask: options.blockSparse = true; break;
  case Feature::BoxMask: options.blockSparse = options.maskByBoxes = true; break;
  case Feature::F32: options.dtype = DType::F32; break;
  case Feature::Gradients: options.gradients = {"slopes"}; break;
  case Feature::Lengths:
  case Feature::Ragged:
  case Feature::RowMax:
  case Feature::Tangents:
  case Feature::Reductions:
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
  const auto mod = take(Mod::parse(neighborhood));
  int refused = 0;
  for (auto [kind, families] : {std::pair(KernelKind::Forward, forwardFamilies()),
                                {KernelKind::Backward, backwardFamilies()},
                                {KernelKind::Decode, decodeFamilies()}})
    for (const FamilyInfo& info : families)
      all().forEach([&, kind = kind](Feature feature) {
        if (kind != KernelKind::Backward &&
            (feature == Feature::Gradients || feature == Feature::Deterministic || feature == Feature::Tangents))
          return;
        if (kind == KernelKind::Backward && feature == Feature::RowMax) return;  // not read
        if (kind == KernelKind::Decode && feature == Feature::RowScales) return; // not read
        const KernelOptions options = optionsWith(feature, kind, info.family, info.arch);
        const auto source = test::sourcesOf(compiler, mod, options);
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
  const Error refused =
      refusalOf(test::sourcesOf(compiler, Mod::identity(), {.arch = "sm_90a", .features = {Feature::Pages}}));
  CHECK(refused.message == "KernelOptions::features holds pages");
  CHECK(refused.remedy == "KernelOptions::pageSize asks for these");
}

namespace {

/// Returns the cells of a line of a table, without markup.
std::vector<std::string> cellsOf(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream rest(line.substr(1));
  for (std::string cell; std::getline(rest, cell, '|');) {
    const size_t first = cell.find_first_not_of(" *"), last = cell.find_last_not_of(" *");
    cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
  }
  return cells;
}

/// Adds to a request what a heading of the tables means.
void add(KernelOptions& options, const std::string& heading) {
  static const std::map<std::string, Feature> kHeadings = {{"lengths", Feature::Lengths},
                                                           {"offsets", Feature::Offsets},
                                                           {"pages", Feature::Pages},
                                                           {"appends", Feature::Appends},
                                                           {"ragged", Feature::Ragged},
                                                           {"fp8", Feature::Fp8Kv},
                                                           {"block mask", Feature::BlockMask},
                                                           {"f32", Feature::F32},
                                                           {"row max", Feature::RowMax},
                                                           {"deterministic", Feature::Deterministic},
                                                           {"gradients of captures", Feature::Gradients}};
  const Feature feature = kHeadings.at(heading);
  if (kOptionFeatures.has(feature)) options.features.set(feature);
  if (feature == Feature::Fp8Kv && options.kind == KernelKind::Forward) options.features.set(Feature::Fp8Q);
  if (feature == Feature::Offsets) options.offsets = QueryOffsets::Tensor;
  if (feature == Feature::Pages) options.pageSize = 16;
  if (feature == Feature::Pages || feature == Feature::Appends) options.features.set(Feature::Lengths);
  if (options.features.has(Feature::Appends) && options.features.has(Feature::Ragged)) options.pageSize = 16;
  if (feature == Feature::BlockMask) options.blockSparse = true;
  if (feature == Feature::F32) options.dtype = DType::F32;
  if (feature == Feature::Gradients) options.gradients = {"slopes"};
}

/// Returns the family whose kernel serves a request on Hopper, as the tables spell it.
std::string servedBy(const Compiler& compiler, const Mod& mod, const KernelOptions& options) {
  const auto stages = test::sourcesOf(compiler, mod, options);
  if (!stages) return "-";
  for (const KernelSource& stage : *stages)
    if (stage.templateName.find("_sm90") != std::string::npos) return "sm90";
  return "sm80";
}

} // namespace

TEST_CASE("the tables of docs/serving.md say which features combine", "[api][features]") {
  const Compiler compiler({.cacheMode = CompilerOptions::CacheMode::Off});
  const auto mod = take(Mod::parse("slopes: f32[H]\ndef score_mod(score, b, h, q, k): return score + slopes[h]\n"
                                   "def mask_mod(b, h, q, k): return q >= k\n"));
  const std::map<std::string, KernelKind> kinds = {
      {"forward", KernelKind::Forward}, {"decode", KernelKind::Decode}, {"backward", KernelKind::Backward}};
  std::ifstream page(ATTNC_SOURCE_DIR "/docs/serving.md");
  std::vector<std::string> headings;
  int compared = 0;
  for (std::string line; std::getline(page, line);) {
    const std::vector<std::string> cells = line.find("| ") == 0 ? cellsOf(line) : std::vector<std::string>();
    if (cells.empty() && line.find("|---") != 0) headings.clear();
    if (cells.empty() || (headings.empty() && !kinds.count(cells[0]))) continue;
    if (headings.empty()) {
      headings = cells;
      continue;
    }
    for (size_t i = 1; i < cells.size(); ++i) {
      KernelOptions options{.kind = kinds.at(headings[0]), .arch = "sm_90a", .headDim = 128, .packedRows = 16};
      add(options, cells[0]);
      add(options, headings[i]);
      INFO(headings[0] << ": " << cells[0] << " with " << headings[i]);
      CHECK(servedBy(compiler, mod, options) == cells[i]);
      ++compared;
    }
  }
  CHECK(compared == 7 * 9 + 6 * 7 + 4 * 7);
}
