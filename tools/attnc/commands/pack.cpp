// `attnc pack`: compiles kernels ahead of time, into one file.
#include "commands.h"
#include "output_file.h"
#include "problem/shapes.h"
#include "progress.h"
#include "show/kernel_rows.h"
#include "support/try.h"
#include "text.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <unistd.h>

namespace attnc::cli {
namespace {

/// Lists of values, of which each combination is packed. The base has the rest, and a mod without its path.
struct PackOptions : ProblemOptions {
  std::vector<std::string> paths, archs{"sm_90a"}, dtypes{"bf16"}, kinds{"auto"}, shapes;
  std::vector<int> headDims{128};
  bool blockSparse = false;
};

/// A kind of kernel for a kind of operands.
struct Configuration {
  TargetOptions target;
  std::string kind;
  std::optional<ProblemShape> shape;
};

/// Returns a problem with `rows` query heads of one row each, which share K and V. A decode kernel is chosen by their
/// number.
ProblemShape decodeShape(int rows) { return {1, rows, 1, 1, 1024}; }

/// The shape for forward kernels if none is given. Nothing in them depends on it.
constexpr ProblemShape kAnyShape{1, 1, 1, 1024, 1024};

/// Returns the kernels for these operands. `decode`: as in PrepareOptions.
Expected<std::vector<KernelOptions>> kernelsFor(const Compiler& compiler, const Mod& mod, const PackOptions& options,
                                                const Configuration& configuration, const ProblemShape& problem,
                                                std::optional<bool> decode) {
  const bool isBackward = configuration.kind == "backward";
  PrepareOptions prepare = options.kernel.toOptions();
  prepare.arch = configuration.target.arch;
  prepare.offsets = options.sequences.offsets();
  prepare.deterministic = options.gradients.deterministic;
  prepare.decode = isBackward ? std::nullopt : decode;
  if (isBackward) std::swap(prepare.tile, prepare.backwardTile);
  prepare.buildBlockMask = !options.noBlockMask && !options.blockSparse;
  const auto settle = [&](const ProblemShape& of) {
    Shapes shapes = shapesOf(of, configuration.target, options.sequences);
    const auto& rows = shapes.operands.q.shape;
    if (options.rowMax)
      shapes.outputs.rowMax = TensorView::contiguous(nullptr, DType::F32, {rows[0], rows[1], rows[2]});
    return isBackward ? compiler.settleTraining(mod, shapes.operands, shapes.outputs, shapes.gradients, prepare)
                      : compiler.settle(mod, shapes.operands, shapes.outputs, prepare);
  };
  ATTNC_TRY_AS(settled, settle(problem));
  if (settled->kernel.options().family == Family::Grid &&
      prepare.family == Family::Auto) { // below, with other launches
    ProblemShape other = problem;
    ++other.kvLen; // adds a key that is not on the grid
    settled = settle(other);
    if (!settled) return std::move(settled).error();
  }
  std::vector<KernelOptions> kernels;
  for (const Plan& plan : settled->kernels()) kernels.push_back(plan.options());
  const bool mayHaveNone = options.sequences.ragged || settled->kernel.options().offsets != QueryOffsets::None;
  if (mayHaveNone && settled->blockMask) { // lengths of a launch say whether it has one
    prepare.buildBlockMask = false;
    ATTNC_TRY_AS(without, settle(problem));
    kernels.push_back(without->kernel.options());
  }
  for (KernelOptions& kernel : kernels) {
    if (kernel.kind == KernelKind::Backward) {
      ATTNC_TRY_AS(wanted, options.gradients.wanted(mod));
      kernel.gradients = *std::move(wanted);
    }
    if (options.blockSparse && kernel.kind != KernelKind::Decode) kernel.blockSparse = true;
    // Kernels of gradients and block masks may need another family than the one settled without them.
    if (kernel.kind != KernelKind::BlockMask) kernel.family = prepare.family;
    kernel.noBoxes = true;
  }
  if (prepare.family != Family::Auto || options.blockSparse) return kernels;
  // Launches whose tokens lie on the grids of the mod may take other kernels than the rest. A pack must serve both.
  std::vector<KernelOptions> onGrid;
  for (KernelOptions kernel : kernels) {
    if (kernel.kind != KernelKind::Forward && kernel.kind != KernelKind::Backward) continue;
    kernel.family = Family::Grid;
    kernel.blockSparse = kernel.listsOfWholeMod = false;
    kernel.noBoxes = false;
    const auto plan = compiler.plan(mod, kernel);
    if (!plan) return kernels;        // training uses boxes in both passes or in neither
    if (plan->gainsFromBlockMask()) { // box lists, which training does not use
      if (isBackward || !settled->blockMask || !mod.declaresGrids()) return kernels;
      kernel.blockSparse = kernel.maskByBoxes = kernel.listsOfWholeMod = true;
      onGrid.push_back({.kind = KernelKind::BlockMask, .arch = kernel.arch, .maskByBoxes = true, .pins = kernel.pins});
    }
    onGrid.push_back(kernel);
  }
  kernels.insert(kernels.end(), onGrid.begin(), onGrid.end());
  return kernels;
}

/// Returns the kernels of a configuration. `auto` without a shape gives forward kernels, and decode kernels if they
/// exist. If only decode kernels take the operands, it gives these.
Expected<std::vector<KernelOptions>> kernelsOf(const Compiler& compiler, const Mod& mod, const PackOptions& options,
                                               const Configuration& configuration) {
  const std::string& kind = configuration.kind;
  if (kind == "block-mask") {
    KernelOptions kernel{.kind = KernelKind::BlockMask, .arch = configuration.target.arch};
    kernel.pins = options.kernel.toOptions().pins;
    std::vector<KernelOptions> kernels{kernel, kernel};
    kernels.back().columnLists = true;
    return kernels;
  }
  const auto decode = kind == "auto" ? std::optional<bool>() : kind == "decode";
  if (configuration.shape) return kernelsFor(compiler, mod, options, configuration, *configuration.shape, decode);
  std::vector<KernelOptions> kernels;
  const auto add = [&](const ProblemShape& shape, std::optional<bool> asDecode) -> Status {
    ATTNC_TRY_AS(more, kernelsFor(compiler, mod, options, configuration, shape, asDecode));
    kernels.insert(kernels.end(), more->begin(), more->end());
    return {};
  };
  if (kind != "decode") ATTNC_TRY(add(kAnyShape, decode));
  if (kind == "decode" || kind == "auto")
    for (int rows : {16, 32, 64})
      if (Status status = add(decodeShape(rows), true); !status && kind == "decode") return std::move(status).error();
  return kernels;
}

/// Returns the cross product of the requested values.
std::vector<Configuration> configurationsOf(const PackOptions& options) {
  std::vector<std::optional<ProblemShape>> shapes;
  for (const std::string& text : options.shapes) {
    const ShapeText given = parseShape("--shape", text, kUsualShape);
    if (given.headDim &&
        std::find(options.headDims.begin(), options.headDims.end(), *given.headDim) == options.headDims.end())
      throw wrongUsage("--shape", fmt::format("{}: its head dim is none of --head-dim", inQuotes(text)),
                       fmt::format("--head-dim {}", *given.headDim));
    shapes.emplace_back(given.shape);
  }
  if (shapes.empty()) shapes.emplace_back();
  std::vector<Configuration> all;
  for (const std::string& arch : options.archs)
    for (const std::string& dtype : options.dtypes)
      for (int headDim : options.headDims)
        for (const std::string& kind : options.kinds)
          for (const auto& shape : shapes) {
            TargetOptions target = options.target;
            target.arch = arch;
            target.dtype = dtype;
            target.headDim = headDim;
            target.check();
            all.push_back({std::move(target), kind, shape});
          }
  return all;
}

Expected<std::string> packBytes(const PackOptions& options) {
  const Progress progress("compiling");
  const Compiler compiler(options.kernel.toCompilerOptions());
  std::vector<Configuration> configurations = configurationsOf(options);
  for (Configuration& configuration : configurations) {
    ATTNC_TRY_AS(arch, configuration.target.archAsked());
    configuration.target.arch = *std::move(arch);
  }
  std::vector<ModOptions> mods;
  for (const std::string& path : options.paths) {
    mods.push_back(options.mod);
    mods.back().path = path;
  }
  if (mods.empty()) mods.push_back(options.mod);
  std::vector<Plan> plans;
  for (const ModOptions& of : mods) {
    auto mod = of.loadTelling();
    if (mod) mod = pinned(*mod, options.kernel);
    if (!mod) return std::move(mod).error();
    for (const Configuration& configuration : configurations) {
      auto kernels = kernelsOf(compiler, *mod, options, configuration);
      if (!kernels) throwUsage("pack", kernels.error()); // only the options decide whether there is a kernel
      if (!kernels) return std::move(kernels).error();
      for (const KernelOptions& kernel : *kernels) {
        ATTNC_TRY_AS(plan, compiler.plan(*mod, kernel));
        plans.push_back(*std::move(plan));
      }
    }
  }
  return compiler.pack(plans);
}

int runPack(const PackOptions& options) {
  const auto has = [&](const char* kind) {
    return std::find(options.kinds.begin(), options.kinds.end(), kind) != options.kinds.end();
  };
  options.gradients.check(has("backward"));
  if (std::count(options.paths.begin(), options.paths.end(), "-") > 1)
    throw wrongUsage("MOD", "stdin is one mod, and several are given", "give files, or - only");
  const bool toStdout = options.output == "-";
  if (toStdout && isatty(STDOUT_FILENO))
    throw wrongUsage("-o", "a pack is binary, and stdout is a terminal",
                     "give a file, -o kernels.attnc, or redirect stdout");
  refuseOntoInput("-o", options.output, options.paths);
  auto bytes = packBytes(options);
  if (!bytes) return reportEither(bytes.error(), options.json && !toStdout);
  Status status = writeWholeFile(options.output, {*bytes});
  if (!status) return reportEither(status.error(), options.json && !toStdout);
  if (toStdout || !std::filesystem::is_regular_file(options.output)) return kDone; // a pipe or a device
  auto rows = packRows(options.output);                                            // opened as the library opens it
  if (!rows) return reportEither(rows.error(), options.json);
  const JsonReport json{{"ok", true}, {"file", options.output}, {"bytes", bytes->size()}, {"kernels", jsonOf(*rows)}};
  status = printResult(
      options.json ? jsonText(json)
                   : fmt::format("{}: {} programs, {}\n", options.output, rows->size(), sizeText(bytes->size())));
  return status ? kDone : report(status.error());
}

void addLists(CLI::App& command, PackOptions& options) {
  command
      .add_option("--arch", options.archs,
                  "GPU architectures, separated by commas: sm_80, sm_90a, ...; native: that of the GPU here")
      ->delimiter(',')
      ->type_name("ARCH")
      ->capture_default_str()
      ->transform(architecture());
  command
      .add_option("--dtype", options.dtypes, "Of q, k, v and out: bf16, fp16, fp32; e4m3: of q, k and v, out is bf16")
      ->delimiter(',')
      ->type_name("DTYPE")
      ->capture_default_str()
      ->transform(dtypes());
  command
      .add_option("--head-dim", options.headDims, "Of q and k: multiples of 8 from 8 to 256; decode on sm_90a: to 576")
      ->delimiter(',')
      ->capture_default_str()
      ->check(checkHeadDim);
  command.add_option("--head-dim-v", options.target.headDimV, "Of v and out, where it differs")->check(checkHeadDimV);
  command
      .add_option(
          "--kernel", options.kinds,
          "Which kernels: auto (forward or decode, as operands of --shape take them; without --shape both),\n"
          "forward, backward (both passes of training), decode, block-mask. Forward and backward come with the\n"
          "kernel that builds their block mask, where they gain from one")
      ->delimiter(',')
      ->type_name("KERNEL")
      ->capture_default_str()
      ->transform(oneOf(
          {{"auto", {}}, {"forward", {"fwd"}}, {"backward", {"bwd"}}, {"decode", {}}, {"block-mask", {"blockmask"}}}));
  command
      .add_option("--shape", options.shapes,
                  "Problems that decide between forward and decode kernels; may be given again")
      ->allow_extra_args(false)
      ->type_name(kShapeName);
}

} // namespace

void addPack(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<PackOptions>();
  CLI::App* command =
      app.add_subcommand("pack", "Compile kernels ahead of time into one file, which needs neither NVRTC nor a cache");
  command
      ->add_option("mods", options->paths,
                   "The mods: files with score_mod and/or mask_mod, or IR text (*.ir); -: stdin")
      ->type_name("MOD");
  options->mod.addChoicesTo(*command);
  addLists(*command, *options);
  addVInK(*command, options->target.vInK)->excludes("--head-dim-v");
  options->target.fp8.addTo(*command, /*draws=*/false);
  command->add_flag("--row-max", options->rowMax, "Launches may ask for the row maximum");
  command->add_flag("--block-sparse", options->blockSparse, "Launches are given a block mask (128 x 128)");
  command->add_flag("--no-block-mask", options->noBlockMask,
                    "Nothing builds a block mask, as PrepareOptions::buildBlockMask");
  options->sequences.addTo(*command, "The kernels take a KV length for each sequence",
                           "K and V lie in pages of N rows: 1, 2, 4, 8, 16, 32, 64, 128, 256; --kv-lengths follows");
  options->sequences.addRagged(*command, "The kernels take sequences that lie one behind the other, [total, H, D]");
  options->gradients.addTo(*command);
  options->kernel.addTo(*command);
  command->add_flag("--json", options->json, "Tell what was packed for programs");
  command->add_option("-o,--output", options->output, "Where to: a file (appears whole or not at all), or -")
      ->type_name("FILE")
      ->required();
  command->footer(
      "Options that are lists are combined, each with each. What has other options goes into another pack: a\n"
      "process opens those of ATTNC_PACK=a.attnc:b.attnc, and takes kernels from them before it compiles or\n"
      "looks into the cache. With ATTNC_NO_COMPILE=1, a kernel that was forgotten is an error that says\n"
      "which it is. Kernels of e4m3 come with those that round to it, from the dtype of out.\n"
      "A pack serves the version of attnc that made it. `attnc cache ls PACK` lists it, and\n"
      "`attnc cache verify PACK` reads it whole. Needs no GPU.\n\n"
      "Examples:\n"
      "  attnc pack alibi.py causal.py --arch sm_80,sm_90a --head-dim 64,128 --kernel auto,backward -o "
      "kernels.attnc");
  command->callback([options, &exitCode] { exitCode = runPack(*options); });
}

} // namespace attnc::cli
