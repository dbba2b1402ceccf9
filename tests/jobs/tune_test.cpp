// Tuning against a fake of CUDA (fake_cuda/): each tile is compiled, prepared and launched, without a GPU.
#include "jobs/operands.h"

#include "attnc/compiler.h"
#include "attnc/tuning.h"
#include "helpers/library.h"
#include "helpers/take.h"
#include "helpers/temp_directory.h"

#include <catch2/catch.hpp>

using namespace attnc;

TEST_CASE("tuning prepares and launches every tile of both passes, with lists by row and by column", "[tune]") {
  const test::TempDirectory home;
  const Compiler compiler({.cacheDirectory = home / "cache"});
  const Mod mod = take(Mod::load(ATTNC_SOURCE_DIR "/dsl/mods/document.py"));
  test::Launch launch;
  test::fillLaunch(launch, mod, {.kind = KernelKind::Backward, .arch = "sm_80", .headDim = 64, .headDimV = 64}, 4096);
  const Tuning tuning =
      take(compiler.tuneTraining(mod, launch.operands, launch.outputs, launch.gradients, {}, nullptr));
  CHECK(tuning.preparation.blockMask);
  REQUIRE(tuning.backward);
  for (const TunedKernel* kernel : {&tuning.forward, &*tuning.backward}) {
    CHECK(kernel->tiles.size() > 1);
    for (const TunedTile& tile : kernel->tiles) {
      INFO(tile.tile);
      CHECK(tile.passedOver.empty());
      CHECK(tile.ms == (kernel == &tuning.forward ? 1 : 4)); // a stage takes 1 ms
    }
  }
}
