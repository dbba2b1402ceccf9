// Tiles: how families spell them, which ones a request may ask for, and what a plan makes of one. Needs no GPU.
#include "tests/plan/planned.h"

#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "families/catalog.h"
#include "families/family.h"
#include "families/grids/grid_plan.h"
#include "helpers/plans.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <set>

using namespace attnc;
using Catch::Contains;

namespace {

const char* const kNeighborhood = R"(
HEIGHT: int
WIDTH: int
image = grid(HEIGHT, WIDTH)

def mask_mod(b, h, q_idx, kv_idx):
    qy, qx = image.coords(q_idx)
    ky, kx = image.coords(kv_idx)
    return (abs(qy - ky) <= 6) & (abs(qx - kx) <= 6)
)";

Mod parsed(const char* text) { return take(Mod::parse(text)); }

std::vector<std::string> tilesOf(const Mod& mod, const KernelOptions& options) {
  return take(test::tilesOf(Compiler(), mod, options));
}

} // namespace

TEST_CASE("every family has tiles, the model's own first, and its plans go by each of them", "[tiles]") {
  const Mod plain = Mod::identity(), causal = parsed("q_idx >= kv_idx"), grid = parsed(kNeighborhood);
  for (const plan::FamilyRow* row : plan::families())
    for (int headDim : {32, 64, 128, 192, 256})
      for (bool lists : {false, true}) {
        if (row->kind == KernelKind::BlockMask) continue;
        const bool byGrid = row->family == Family::Grid;
        if (byGrid && (lists || headDim > 128)) continue;
        if (lists && row->kind == KernelKind::Decode) continue;
        const Mod& mod = byGrid ? grid : lists ? causal : plain;
        KernelOptions options{.kind = row->kind,
                              .family = row->family,
                              .arch = std::string(row->arch),
                              .headDim = headDim,
                              .blockSparse = lists};
        INFO(familyName(row->family) << ", kind " << int(row->kind) << ", head dim " << headDim
                                     << (lists ? ", lists" : ""));
        const std::vector<std::string> tiles = tilesOf(mod, options);
        REQUIRE_FALSE(tiles.empty());
        CHECK(tiles.size() <= 12);
        CHECK(std::set<std::string>(tiles.begin(), tiles.end()).size() == tiles.size());
        CHECK(test::planOf(mod, options).tile == tiles.front());
        CHECK(test::planOf(mod, options).options.tile.empty());
        for (const std::string& tile : tiles) {
          options.tile = tile;
          CHECK(tilesOf(mod, options) == tiles); // whichever is asked for
          const plan::Plan plan = test::planOf(mod, options);
          CHECK(plan.tile == tile);
          CHECK(plan.options.tile == tile);
          const auto last = std::find_if(plan.stages.rbegin(), plan.stages.rend(), [](const plan::Stage& stage) {
            return stage.templateName.rfind("backward_large.", 0) != 0; // of any tile
          });
          const codegen::Config& config = last->config;
          CHECK(config.sharedBytes <= 227 * 1024);
          if (byGrid)
            CHECK(plan::boxesText(*config.boxes) == tile);
          else
            CHECK_THAT(tile, Catch::StartsWith(plan::tileText({config.blockM, config.blockN, config.warps})));
          if (!byGrid && row->kind == KernelKind::Backward && tile.ends_with("-turns"))
            CHECK(*plan.stages[1].config.takesTurns);
          if (lists && row->kind == KernelKind::Forward) CHECK(128 % config.blockN == 0);
        }
      }
}

TEST_CASE("without a tile a plan is the one of the first", "[tiles]") {
  for (const char* text : {"score", "q_idx >= kv_idx", kNeighborhood})
    for (const char* arch : {"sm_80", "sm_90a"}) {
      const Mod mod = parsed(text);
      KernelOptions options{.arch = arch, .headDim = 64};
      auto model = test::sourcesOf(Compiler(), mod, options);
      options.tile = tilesOf(mod, options).front();
      auto asked = test::sourcesOf(Compiler(), mod, options);
      REQUIRE((model && asked));
      REQUIRE(model->size() == asked->size());
      for (size_t i = 0; i < model->size(); ++i) CHECK((*model)[i].flattened() == (*asked)[i].flattened());
    }
}

TEST_CASE("a spelling that is no tile is an error that names those there are", "[tiles]") {
  const Mod mod = Mod::identity();
  for (const char* tile : {"192x128", "1x2x3", "192X128X12", " 192x128x12", "q1x8x8 kv1x8x8 split2"}) {
    const Error refused = refusalOf(test::sourcesOf(Compiler(), mod, {.arch = "sm_90a", .headDim = 64, .tile = tile}));
    CHECK(refused.blame == Blame::Environment);
    CHECK(refused.message == fmt::format("the sm90 family has no tile `{}` for this request", tile));
    CHECK_THAT(refused.remedy, Contains("it has 192x128x12, "));
  }
}

TEST_CASE("candidates keep to what lists and pages ask of a tile", "[tiles]") {
  KernelOptions options{.arch = "sm_90a", .headDim = 64, .features = {Feature::Lengths}, .pageSize = 64};
  for (const std::string& tile : tilesOf(Mod::identity(), options)) CHECK((tile == "128x128x8" || tile == "128x64x8"));
  options = {.family = Family::Sm80, .arch = "sm_80", .headDim = 64, .blockSparse = true, .maskQBlock = 64};
  for (const std::string& tile : tilesOf(parsed("q_idx >= kv_idx"), options))
    CHECK_THAT(tile, Catch::StartsWith("64x"));
}

TEST_CASE("a mod that keeps many words of a row gets tiles of fewer rows on Hopper", "[tiles]") {
  for (auto [name, tile] :
       {std::pair("sliding_tile", "128x128x8"), {"top_k_blocks", "128x128x8"}, {"tree", "192x128x12"}}) {
    const auto mod = take(Mod::load(fmt::format("{}/dsl/mods/{}.py", ATTNC_SOURCE_DIR, name)));
    CHECK(tilesOf(mod, {.family = Family::Sm90, .arch = "sm_90a", .headDim = 64}).front() == tile);
  }
}

TEST_CASE("backward and decode kernels have tiles to choose from", "[tiles]") {
  using Tiles = std::vector<std::string>;
  const Mod plain = Mod::identity(), general = parsed("score * score");
  const auto backward = [&](const Mod& mod, Family family, int headDim, bool deterministic = false) {
    return tilesOf(mod, {.kind = KernelKind::Backward,
                         .family = family,
                         .arch = "sm_90a",
                         .headDim = headDim,
                         .features = {Feature::Deterministic, deterministic}});
  };
  CHECK(backward(plain, Family::Sm90, 64) == Tiles{"128x128x8", "64x128x8", "64x128x8-turns"});
  CHECK(backward(general, Family::Sm90, 64) == Tiles{"64x128x8", "64x128x8-turns"});
  CHECK(backward(plain, Family::Sm90, 128) == Tiles{"64x128x8", "64x128x8-turns"});
  CHECK(backward(plain, Family::Sm90, 128, /*deterministic=*/true) == Tiles{"64x128x8"}); // takes turns anyway
  const auto latent = [&](const Mod& mod, KernelOptions options) {
    options.kind = KernelKind::Backward, options.family = Family::Sm90, options.arch = "sm_90a";
    options.headDim = 192, options.headDimV = 128;
    return tilesOf(mod, options);
  };
  CHECK(latent(plain, {}) == Tiles{"64x128x8", "64x64x8"});
  CHECK(latent(plain, {.features = {Feature::Deterministic}}) == Tiles{"64x128x8"});
  CHECK(latent(parsed("q_idx >= kv_idx"), {.blockSparse = true}) == Tiles{"64x128x8", "64x64x8"});
  CHECK(latent(parsed("q_idx >= kv_idx"), {.blockSparse = true, .maskKvBlock = 64}) == Tiles{"64x64x8"});
  CHECK(latent(parsed("score * 2.0"), {}) == Tiles{"64x64x8"}); // rates take registers
  CHECK(backward(plain, Family::Sm90, 192) == Tiles{"64x64x8"});
  CHECK(backward(plain, Family::Sm80, 64) == Tiles{"32x128x4", "32x64x4", "64x128x8", "64x64x4"});
  CHECK(backward(plain, Family::Sm80, 128) == Tiles{"64x128x8", "32x64x4", "64x64x4"});
  CHECK(backward(plain, Family::Sm80, 128, /*deterministic=*/true) == Tiles{"64x32x4", "64x16x4"});
  KernelOptions few{.kind = KernelKind::Decode, .arch = "sm_90a", .headDim = 128};
  CHECK(tilesOf(plain, few) == Tiles{"16x128x8", "16x128x4", "16x64x4"});
}

TEST_CASE("blocks of a mask leave a backward kernel the tiles that lie in one of them", "[tiles]") {
  KernelOptions options{.kind = KernelKind::Backward,
                        .family = Family::Sm80,
                        .arch = "sm_80",
                        .headDim = 64,
                        .blockSparse = true,
                        .maskQBlock = 64,
                        .maskKvBlock = 64};
  for (const std::string& tile : tilesOf(parsed("q_idx >= kv_idx"), options)) CHECK_THAT(tile, Contains("x64x"));
}

TEST_CASE("boxes are ranked by the model, and no two of them are alike", "[tiles]") {
  auto kernelMod = take(kernelModOf(parsed(kNeighborhood), plan::algebraFor(KernelOptions{})));
  REQUIRE(kernelMod->grid);
  const auto all = plan::rankBoxes(*kernelMod->grid, 128, 128, {.consumers = 2}, 100),
             one = plan::rankBoxes(*kernelMod->grid, 128, 128, {.consumers = 2}, 1);
  REQUIRE(all.size() == 100);
  REQUIRE(one.size() == 1);
  CHECK(plan::boxesText(one[0]) == plan::boxesText(all[0]));
  std::set<std::string> shapes;
  for (const auto& boxes : all) {
    const std::string text = plan::boxesText(boxes);
    CHECK(shapes.insert(text.substr(0, text.find(" split"))).second);
  }
}
