// `attnc tune`: measures which tile of a mod's kernels is the fastest on this GPU, and keeps it.
#include "commands/command.h"
#include "commands/device_operands.h"
#include "problem/measured_problems.h"
#include "progress.h"
#include "text.h"

#include "support/try.h"
#include "tools/device/device.h"

#include <fmt/format.h>

namespace attnc::cli {
namespace {

struct TuneCommand : MeasuredProblems {
  bool json = false;
};

/// The result of tuning one kernel of one problem.
struct Tuned {
  std::string kind;     ///< "forward", "decode", "backward"
  KernelOptions kernel; ///< complete
  ProblemShape problem;
  TunedKernel found;
};

const TunedTile& winnerOf(const Tuned& tuned) {
  for (const TunedTile& tile : tuned.found.tiles)
    if (tile.isWinner) return tile;
  return tuned.found.tiles.front();
}

std::string rowOfTile(const Tuned& tuned, const TunedTile& tile, size_t width) {
  std::string text = fmt::format("            {:{}}", tile.tile, width);
  const double model = tuned.found.tiles.front().ms;
  if (tile.ms > 0) text += fmt::format("  {:.4f} ms", tile.ms);
  if (tile.ms > 0 && &tile != &tuned.found.tiles.front())
    text += fmt::format("  {:+.1f} %", 100 * (tile.ms / model - 1));
  if (&tile == &tuned.found.tiles.front()) text += "  the model's";
  if (tile.isWinner) text += "  <- taken";
  if (!tile.passedOver.empty()) text += "  passed over: " + tile.passedOver;
  return text + "\n";
}

std::string textOf(const Tuned& tuned) {
  const std::vector<TunedTile>& tiles = tuned.found.tiles;
  std::string text = fmt::format("{:12}family {}", tuned.kind, familyName(tuned.kernel.family));
  if (tiles.size() == 1) return text + fmt::format(": its tile is {}, there is nothing to choose\n", tiles[0].tile);
  text += fmt::format(", {} tiles\n", tiles.size());
  size_t width = 0;
  for (const TunedTile& tile : tiles) width = std::max(width, tile.tile.size());
  for (const TunedTile& tile : tiles) text += rowOfTile(tuned, tile, width);
  return text + fmt::format("{:12}{}\n", "stored",
                            tuned.found.file.empty() ? "nowhere: no cache directory may be written" : tuned.found.file);
}

JsonReport jsonOf(const Tuned& tuned) {
  JsonReport json{{"kind", tuned.kind},
                  {"shape", shapeJson(tuned.problem)},
                  {"family", familyName(tuned.kernel.family)},
                  {"model", tuned.found.tiles.front().tile},
                  {"winner", winnerOf(tuned).tile},
                  {"tiles", JsonReport::array()}};
  for (const TunedTile& tile : tuned.found.tiles) {
    JsonReport one{{"tile", tile.tile}};
    if (tile.ms > 0) one["ms"] = tile.ms;
    if (!tile.passedOver.empty()) one["passedOver"] = tile.passedOver;
    json["tiles"].push_back(std::move(one));
  }
  if (!tuned.found.file.empty()) json["file"] = tuned.found.file;
  return json;
}

/// Tunes only the backward kernel. The forward one keeps its tile; another --kernel tunes it.
Expected<Tuned> tuneBackward(const Compiler& compiler, const device::Stream& stream, const Mod& mod,
                             const DeviceOperands& on, const ProblemOptions& options) {
  PrepareOptions prepare = prepareOptions(options);
  ATTNC_TRY_AS(settled, compiler.settleTraining(mod, on.inputs, on.outputs, on.gradients, prepare));
  prepare.tile = settled->kernel.tile();
  ATTNC_TRY_AS(tuning, compiler.tuneTraining(mod, on.inputs, on.outputs, on.gradients, prepare, stream.get()));
  const KernelOptions& kernel = tuning->preparation.backward->options();
  return Tuned{"backward", kernel, tuning->preparation.problem, *std::move(tuning->backward)};
}

Expected<Tuned> tuneOne(const Compiler& compiler, const device::Stream& stream, const Mod& mod,
                        const HostOperands& operands, const ProblemOptions& options) {
  DeviceOperands on(operands, options);
  ATTNC_TRY(on.place());
  if (options.backward) return tuneBackward(compiler, stream, mod, on, options);
  if (!options.lse) on.outputs.lse.reset();
  ATTNC_TRY_AS(tuning, compiler.tune(mod, on.inputs, on.outputs, prepareOptions(options), stream.get()));
  const KernelOptions& kernel = tuning->preparation.kernel.options();
  return Tuned{kernel.kind == KernelKind::Decode ? "decode" : "forward", kernel, tuning->preparation.problem,
               std::move(tuning->forward)};
}

Status runTune(const TuneCommand& command) {
  ATTNC_TRY(command.check("tune"));
  if (!command.run.kernel.tile.empty())
    throw wrongUsage("--tile", "tune chooses it", "leave it out; `attnc bench --tile` times one tile");
  const std::vector<ProblemOptions> problems = command.problems();
  ATTNC_TRY_AS(context, MeasuredProblems::gpu("tune"));
  ATTNC_TRY_AS(mod, loadMod(command.run));
  ATTNC_TRY_AS(pinnedMod, pinned(*mod, command.run.kernel));
  ATTNC_TRY_AS(stream, device::Stream::create());
  const Compiler compiler(command.run.kernel.toCompilerOptions());
  std::string text =
      fmt::format("mod         {}\ndevice      {} ({})\nmeasured    under load: tiles take turns in bursts of 0.5 s\n",
                  mod->name(), context->info().name, context->info().arch);
  JsonReport json{{"ok", true},
                  {"mod", mod->name()},
                  {"device", {{"name", context->info().name}, {"arch", context->info().arch}}},
                  {"underLoad", true},
                  {"kernels", JsonReport::array()}};
  auto progress = std::make_unique<Progress>("tuning");
  for (const ProblemOptions& problem : problems) {
    ProblemOptions drawn = problem;
    drawn.backward = command.wants("backward");
    ATTNC_TRY_AS(operands, findOperands(*mod, drawn));
    std::string lines;
    for (const std::string& kind : command.kinds) {
      ATTNC_TRY_AS(tuned, tuneOne(compiler, *stream, *pinnedMod, *operands, MeasuredProblems::ofKind(problem, kind)));
      const KernelOptions& kernel = tuned->kernel;
      if (lines.empty())
        lines = fmt::format("problem     {}, head dims {} and {}, {}\n", shapeText(tuned->problem), kernel.headDim,
                            kernel.headDimV, dtypeName(kernel.dtype));
      lines += textOf(*tuned);
      json["kernels"].push_back(jsonOf(*tuned));
    }
    text += lines;
  }
  return printResult(command.json ? jsonText(json) : text);
}

} // namespace

void addTune(CLI::App& app, int& exitCode) {
  auto [command, options] = addCommand<TuneCommand>(
      app, exitCode, "tune", "Measure which tile of a mod's kernels is the fastest, and keep the choice", runTune);
  options.addTo(command);
  command.get_option("--tile")->group(""); // hidden: a user who gives it learns that tune chooses the tile
  command.add_flag("--json", options.json, "For programs");
  command.footer(
      R"(A choice is kept in the cache directory, with the kernels. From then on all processes take it for this GPU,
mod, options, and problems of the same class.
Problems of a class have as many heads a KV head, and lengths of the same power of two. For decode kernels they
also share the KV heads of all batches, for grids the extents.
A choice is advice: ATTNC_TUNED=0 does without, and a choice of another version of attnc is not looked at.
Tiles are measured under load: three bursts of 0.5 s each, in turns, so that clocks settle.
The tile of the catalogue's model stays unless another one is faster by more than 2 % and gives the same
results: of a backward kernel the gradients of q, k and v.
`attnc explain` says which tile a kernel has, and who chose it. Needs a GPU.

Examples:
  attnc tune alibi.py --shape 2,16,16,8192,8192 --head-dim 64
  attnc tune neighborhood2d.py --shape 1,24,24,16384,16384 --kernel forward,backward --json)");
}

} // namespace attnc::cli
