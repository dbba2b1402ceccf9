// Tuning on the GPU: what is measured is kept, another compiler takes it, and results are the same.
#include "helpers/temp_directory.h"
#include "on_device.h"

#include <algorithm>
#include <filesystem>

using namespace attnc;
using namespace attnc::gputest;

namespace {

OnDevice drawn(const Mod& mod, const Problem& problem) {
  return OnDevice(mod, problem, drawGradients(problem, /*withLse=*/false));
}

/// Launches into fresh outputs, and holds them against the reference.
void check(OnDevice& work, const Mod& mod, const Prepared& prepared, const device::Stream& stream) {
  work.poison();
  const device::Buffer workspace = take(device::Buffer::allocate(prepared.workspaceBytes()));
  take(prepared.initialise(work.inputs, workspace.data(), stream.get()));
  take(prepared.launch(work.inputs, work.outputs, workspace.data(), stream.get()));
  if (prepared.backwardKernel())
    take(prepared.launchBackward(work.inputs, work.gradients, workspace.data(), stream.get()));
  take(stream.synchronize());
  if (prepared.backwardKernel())
    work.checkTraining(mod);
  else
    work.check(mod);
}

/// Whatever won, the file of the choice has this tile then.
void sayWon(const TunedKernel& kernel, size_t tile) {
  std::string text = test::readText(kernel.file);
  for (const TunedTile& one : kernel.tiles) {
    if (!one.isWinner) continue;
    const std::string won = "\"tile\": \"" + one.tile + "\"";
    const size_t at = text.find(won);
    REQUIRE(at != std::string::npos);
    text.replace(at, won.size(), "\"tile\": \"" + kernel.tiles[tile].tile + "\"");
  }
  test::writeText(kernel.file, text);
}

/// Checks that the model's kernel is taken where the tuned one cannot be had, in training the backward kernel.
void checkWithoutTuned(bool trains) {
  Gpu& gpu = *gputest::gpu();
  const test::TempDirectory home;
  const Mod mod = libraryMod("noop");
  OnDevice tuned = drawn(mod, {{1, 2, 2, 1000, 1000}, 64, 64, DType::BF16});
  CompilerOptions options{.cacheDirectory = home / "cache", .tuned = true};
  const auto prepare = [&] {
    const Compiler compiler(options);
    return take(trains ? compiler.prepareTraining(mod, tuned.inputs, tuned.outputs, tuned.gradients)
                       : compiler.prepare(mod, tuned.inputs, tuned.outputs));
  };
  const auto tileFrom = [&](const Prepared& prepared) {
    const Preparation& p = prepared.preparation();
    return trains ? p.backward->tileFrom() : p.kernel.tileFrom();
  };
  const Preparation model = prepare().preparation();
  test::writeText(home / "pack", take(Compiler(options).pack(model.kernels())));
  const Compiler compiler(options);
  const Tuning tuning = take(trains ? compiler.tuneTraining(mod, tuned.inputs, tuned.outputs, tuned.gradients,
                                                            {.tile = model.kernel.tile()}, gpu.stream.get())
                                    : compiler.tune(mod, tuned.inputs, tuned.outputs, {}, gpu.stream.get()));
  const TunedKernel& kernel = trains ? *tuning.backward : tuning.forward;
  if (kernel.tiles.size() < 2) return;
  sayWon(kernel, 1);
  if (trains) CHECK(tileFrom(prepare()) == TileFrom::Tuned);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(home / "cache"))
    if (entry.path().extension() == ".attnc") std::filesystem::remove(entry.path());
  options.packs = {home / "pack"};
  options.noCompile = true;
  const Prepared prepared = prepare();
  CHECK(tileFrom(prepared) == TileFrom::Model);
  check(tuned, mod, prepared, gpu.stream);
}

} // namespace

GPU_TEST_CASE("tuning measures every tile, and what it keeps is taken by another compiler", "[gpu]") {
  Gpu& gpu = *gputest::gpu();
  const test::TempDirectory home;
  const CompilerOptions options{.cacheDirectory = home / "cache", .tuned = true};
  for (const char* name : {"noop", "causal", "document", "neighborhood2d"}) {
    INFO(name);
    const Mod mod = libraryMod(name);
    const bool isGrid = std::string(name) == "neighborhood2d";
    OnDevice tuned =
        drawn(mod, {isGrid ? ProblemShape{1, 2, 2, 128 * 128, 128 * 128} : ProblemShape{2, 4, 2, 1000, 1500}, 64, 64,
                    DType::BF16});
    const Compiler compiler(options);
    const Tuning tuning = take(compiler.tune(mod, tuned.inputs, tuned.outputs, {}, gpu.stream.get()));
    REQUIRE_FALSE(tuning.forward.tiles.empty());
    CHECK(std::count_if(tuning.forward.tiles.begin(), tuning.forward.tiles.end(),
                        [](const TunedTile& tile) { return tile.isWinner; }) == 1);
    for (const TunedTile& tile : tuning.forward.tiles) {
      INFO(tile.tile << ": " << tile.ms << " ms " << tile.passedOver);
      CHECK(tile.ms > 0);
      CHECK(tile.passedOver.empty());
      if (tile.isWinner) CHECK(tuning.preparation.kernel.tile() == tile.tile);
      // Each of them is right, whichever wins.
      const Prepared asked = take(compiler.prepare(mod, tuned.inputs, tuned.outputs, {.tile = tile.tile}));
      CHECK(asked.preparation().kernel.tile() == tile.tile);
      CHECK(asked.preparation().kernel.tileFrom() == TileFrom::Asked);
      if (!isGrid) check(tuned, mod, asked, gpu.stream);
    }
    if (tuning.forward.tiles.size() > 1) CHECK(std::filesystem::exists(tuning.forward.file));
    for (const Compiler& later : {compiler, Compiler(options)}) {
      const Prepared prepared = take(later.prepare(mod, tuned.inputs, tuned.outputs));
      CHECK(prepared.preparation().kernel.tile() == tuning.preparation.kernel.tile());
      CHECK(prepared.preparation().kernel.tileFrom() ==
            (tuning.forward.tiles.size() > 1 ? TileFrom::Tuned : TileFrom::Model));
      if (!isGrid) check(tuned, mod, prepared, gpu.stream);
    }
    CompilerOptions off = options;
    off.tuned = false;
    CHECK(take(Compiler(off).prepare(mod, tuned.inputs, tuned.outputs)).preparation().kernel.tileFrom() ==
          TileFrom::Model);
  }
}

GPU_TEST_CASE("tuning for training measures both passes, and training takes what it keeps", "[gpu]") {
  Gpu& gpu = *gputest::gpu();
  const test::TempDirectory home;
  const CompilerOptions options{.cacheDirectory = home / "cache", .tuned = true};
  for (const char* name : {"causal", "document", "neighborhood2d"}) {
    INFO(name);
    const Mod mod = libraryMod(name);
    const bool isGrid = std::string(name) == "neighborhood2d";
    OnDevice tuned =
        drawn(mod, {isGrid ? ProblemShape{1, 2, 2, 128 * 128, 128 * 128} : ProblemShape{2, 4, 2, 1000, 1500}, 64, 64,
                    DType::BF16});
    const Compiler compiler(options);
    const auto prepare = [&](const Compiler& with, const PrepareOptions& how = {}) {
      return take(with.prepareTraining(mod, tuned.inputs, tuned.outputs, tuned.gradients, how));
    };
    const Tuning tuning =
        take(compiler.tuneTraining(mod, tuned.inputs, tuned.outputs, tuned.gradients, {}, gpu.stream.get()));
    REQUIRE(tuning.backward);
    for (const TunedKernel* kernel : {&tuning.forward, &*tuning.backward}) {
      REQUIRE_FALSE(kernel->tiles.empty());
      CHECK(std::count_if(kernel->tiles.begin(), kernel->tiles.end(),
                          [](const TunedTile& tile) { return tile.isWinner; }) == 1);
      CHECK(std::filesystem::exists(kernel->file) == (kernel->tiles.size() > 1));
    }
    for (const TunedTile& tile : tuning.backward->tiles) {
      INFO(tile.tile << ": " << tile.ms << " ms " << tile.passedOver);
      CHECK(tile.ms > 0);
      CHECK(tile.passedOver.empty());
      if (tile.isWinner) CHECK(tuning.preparation.backward->tile() == tile.tile);
      const Prepared asked = prepare(compiler, {.backwardTile = tile.tile});
      CHECK(asked.preparation().backward->tile() == tile.tile);
      CHECK(asked.preparation().backward->tileFrom() == TileFrom::Asked);
      CHECK(asked.preparation().kernel.tile() == tuning.preparation.kernel.tile());
      if (!isGrid) check(tuned, mod, asked, gpu.stream);
    }
    const auto expected = tuning.backward->tiles.size() > 1 ? TileFrom::Tuned : TileFrom::Model;
    for (const Compiler& later : {compiler, Compiler(options)}) {
      const Prepared prepared = prepare(later);
      const Plan& backward = *prepared.preparation().backward;
      CHECK(backward.tile() == tuning.preparation.backward->tile());
      CHECK(backward.tileFrom() == expected);
      CHECK(backward.tunedBy() == tuning.preparation.backward->tunedBy());
      if (!isGrid) check(tuned, mod, prepared, gpu.stream);
    }
    // Tunes only the backward kernel.
    const Tuning one = take(compiler.tuneTraining(mod, tuned.inputs, tuned.outputs, tuned.gradients,
                                                  {.tile = tuning.forward.tiles[0].tile}, gpu.stream.get()));
    CHECK(one.forward.tiles.empty());
    CHECK(one.preparation.kernel.tile() == tuning.forward.tiles[0].tile);
    CHECK(one.preparation.kernel.tileFrom() == TileFrom::Asked);
    CHECK(one.backward->tiles.size() == tuning.backward->tiles.size());
  }
}

GPU_TEST_CASE("where a tuned kernel is not to be had, the model's is taken", "[gpu]") { checkWithoutTuned(false); }
GPU_TEST_CASE("where a tuned backward kernel is not to be had, the model's is taken", "[gpu]") {
  checkWithoutTuned(true);
}
