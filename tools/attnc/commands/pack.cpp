// `attnc pack`: compiles kernels ahead of time, into one file.
#include "commands/command.h"
#include "output_file.h"
#include "problem/shapes.h"
#include "progress.h"
#include "show/kernel_rows.h"
#include "support/try.h"
#include "text.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <unistd.h>

namespace attnc::cli {
namespace {

/// Lists of values, of which each combination is packed. The base has the rest, and a mod without its path; of a
/// combination it has all.
struct PackOptions : ProblemOptions {
  std::vector<std::string> paths, archs{"sm_90a"}, dtypes{"bf16"}, kinds{"auto"}, shapes;
  std::vector<int> headDims{128};
  bool blockSparse = false;
};

/// Returns a problem with `rows` query heads of one row each, which share K and V. A decode kernel is chosen by their
/// number.
ProblemShape decodeShape(int rows) { return {1, rows, 1, 1, 1024}; }

/// The shape for forward kernels if none is given. Nothing in them depends on it.
constexpr ProblemShape kAnyShape{1, 1, 1, 1024, 1024};

/// Returns the kernels for these operands. `decode`: as in PrepareOptions.
Expected<std::vector<KernelOptions>> kernelsFor(const Compiler& compiler, const Mod& mod, const PackOptions& options,
                                                const ProblemShape& problem, std::optional<bool> decode) {
  const bool isBackward = options.kernelKind.kind == "backward";
  PrepareOptions prepare = prepareOptions(options);
  prepare.decode = isBackward ? std::nullopt : decode;
  if (options.blockSparse) prepare.buildBlockMask = false;
  const auto settledFor = [&](const ProblemShape& of) {
    Shapes shapes = shapesOf(of, options.target, options.sequences);
    const auto& rows = shapes.operands.q.shape;
    if (options.rowMax)
      shapes.outputs.rowMax = TensorView::contiguous(nullptr, DType::F32, {rows[0], rows[1], rows[2]});
    return settle(compiler, mod, shapes, prepare, isBackward);
  };
  ATTNC_TRY_AS(settled, settledFor(problem));
  if (settled->kernel.options().family == Family::Grid &&
      prepare.family == Family::Auto) { // below, with other launches
    ProblemShape other = problem;
    ++other.kvLen; // adds a key that is not on the grid
    settled = settledFor(other);
    if (!settled) return std::move(settled).error();
  }
  std::vector<KernelOptions> kernels;
  for (const Plan& plan : settled->kernels()) kernels.push_back(plan.options());
  const bool mayHaveNone = options.sequences.ragged || settled->kernel.options().offsets != QueryOffsets::None;
  if (mayHaveNone && settled->blockMask) { // lengths of a launch say whether it has one
    prepare.buildBlockMask = false;
    ATTNC_TRY_AS(without, settledFor(problem));
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

/// Returns the kernels of a combination. `auto` without a shape gives forward kernels, and decode kernels if they
/// exist. If only decode kernels take the operands, it gives these.
Expected<std::vector<KernelOptions>> kernelsOf(const Compiler& compiler, const Mod& mod, const PackOptions& options) {
  const std::string& kind = options.kernelKind.kind;
  if (kind == "block-mask") {
    KernelOptions kernel{.kind = KernelKind::BlockMask, .arch = options.target.arch};
    kernel.pins = options.kernel.toOptions().pins;
    std::vector<KernelOptions> kernels{kernel, kernel};
    kernels.back().columnLists = true;
    return kernels;
  }
  const auto decode = kind == "auto" ? std::optional<bool>() : kind == "decode";
  if (options.shape) return kernelsFor(compiler, mod, options, *options.shape, decode);
  std::vector<KernelOptions> kernels;
  const auto add = [&](const ProblemShape& shape, std::optional<bool> asDecode) -> Status {
    ATTNC_TRY_AS(more, kernelsFor(compiler, mod, options, shape, asDecode));
    kernels.insert(kernels.end(), more->begin(), more->end());
    return {};
  };
  if (kind != "decode") ATTNC_TRY(add(kAnyShape, decode));
  if (kind == "decode" || kind == "auto")
    for (int rows : {16, 32, 64})
      if (Status status = add(decodeShape(rows), true); !status && kind == "decode") return std::move(status).error();
  return kernels;
}

/// Returns the plan of a kernel that also computes the outputs of its mod, or takes the gradients of its sums. nullopt:
/// no kernel does.
Expected<std::optional<Plan>> planOfOutputs(const Compiler& compiler, const Mod& mod, const PackOptions& options,
                                            KernelOptions kernel) {
  const bool isBackward = kernel.kind == KernelKind::Backward;
  std::optional<Plan> found;
  if (isBackward ? options.gradients.ofOutputs(mod).empty() : mod.reductions().empty()) return found;
  if (isBackward) {
    ATTNC_TRY_AS(wanted, options.gradients.wanted(mod, /*ofOutputs=*/true));
    kernel.gradients = *std::move(wanted);
  }
  kernel.features.set(Feature::Reductions);
  if (auto plan = compiler.plan(mod, kernel)) found = *std::move(plan);
  return found;
}

/// Returns the cross product of the requested values.
std::vector<PackOptions> combinationsOf(const PackOptions& options) {
  std::vector<std::optional<ProblemShape>> shapes;
  for (const std::string& text : options.shapes) {
    const ShapeText given = parseShape("--shape", text, kUsualShape);
    if (given.headDim && !llvm::is_contained(options.headDims, *given.headDim))
      throw wrongUsage("--shape", fmt::format("{}: its head dim is none of --head-dim", inQuotes(text)),
                       fmt::format("--head-dim {}", *given.headDim));
    shapes.emplace_back(given.shape);
  }
  if (shapes.empty()) shapes.emplace_back();
  std::vector<PackOptions> all;
  for (const std::string& arch : options.archs)
    for (const std::string& dtype : options.dtypes)
      for (int headDim : options.headDims)
        for (const std::string& kind : options.kinds)
          for (const auto& shape : shapes) {
            PackOptions& one = all.emplace_back(options);
            one.target.arch = arch;
            one.target.dtype = dtype;
            one.target.headDim = headDim;
            one.kernelKind.kind = kind;
            one.shape = shape;
            one.target.check();
          }
  return all;
}

Expected<std::string> packBytes(const PackOptions& options) {
  const Progress progress("compiling");
  const Compiler compiler(options.kernel.toCompilerOptions());
  std::vector<PackOptions> combinations = combinationsOf(options);
  for (PackOptions& one : combinations) {
    ATTNC_TRY_AS(arch, one.target.archAsked());
    one.target.arch = *std::move(arch);
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
    for (const PackOptions& one : combinations) {
      auto kernels = kernelsOf(compiler, *mod, one);
      if (!kernels) throwUsage("pack", kernels.error()); // only the options decide whether there is a kernel
      if (!kernels) return std::move(kernels).error();
      for (const KernelOptions& kernel : *kernels) {
        ATTNC_TRY_AS(plan, compiler.plan(*mod, kernel));
        plans.push_back(*std::move(plan));
        if (kernel.kind == KernelKind::BlockMask) continue;
        ATTNC_TRY_AS(more, planOfOutputs(compiler, *mod, one, kernel));
        if (*more) plans.push_back(**std::move(more));
      }
    }
  }
  return compiler.pack(plans);
}

Status runPack(PackOptions& options) {
  options.gradients.check(llvm::is_contained(options.kinds, "backward"));
  if (std::count(options.paths.begin(), options.paths.end(), "-") > 1)
    throw wrongUsage("MOD", "stdin is one mod, and several are given", "give files, or - only");
  const bool toStdout = options.output == "-";
  if (toStdout && isatty(STDOUT_FILENO))
    throw wrongUsage("-o", "a pack is binary, and stdout is a terminal",
                     "give a file, -o kernels.attnc, or redirect stdout");
  refuseOntoInput("-o", options.output, options.paths);
  if (toStdout) options.json = false;
  ATTNC_TRY_AS(bytes, packBytes(options));
  ATTNC_TRY(writeWholeFile(options.output, {*bytes}));
  if (toStdout || !std::filesystem::is_regular_file(options.output)) return {}; // a pipe or a device
  ATTNC_TRY_AS(rows, packRows(options.output));                                 // opened as the library opens it
  const JsonReport json{{"ok", true}, {"file", options.output}, {"bytes", bytes->size()}, {"kernels", jsonOf(*rows)}};
  return printResult(options.json
                         ? jsonText(json)
                         : fmt::format("{}: {} programs, {}\n", options.output, rows->size(), sizeText(bytes->size())));
}

} // namespace

void addPack(CLI::App& app, int& exitCode) {
  auto [command, options] = addCommand<PackOptions>(
      app, exitCode, "pack", "Compile kernels ahead of time into one file, which needs neither NVRTC nor a cache",
      runPack);
  addOption(command, "mods", options.paths, "MOD",
            "The mods: files with score_mod and/or mask_mod, or IR text (*.ir); -: stdin");
  options.mod.addChoicesTo(command);
  addList(command, "--arch", options.archs, "ARCH",
          "GPU architectures, separated by commas: sm_80, sm_90a, ...; native: that of the GPU here")
      ->capture_default_str()
      ->transform(architecture());
  addList(command, "--dtype", options.dtypes, "DTYPE",
          "Of q, k, v and out: bf16, fp16, fp32; e4m3: of q, k and v, out is bf16")
      ->capture_default_str()
      ->transform(dtypes());
  command
      .add_option("--head-dim", options.headDims, "Of q and k: multiples of 8 from 8 to 256; decode on sm_90a: to 576")
      ->delimiter(',')
      ->capture_default_str()
      ->check(checkHeadDim);
  command.add_option("--head-dim-v", options.target.headDimV, "Of v and out, where it differs")->check(checkHeadDimV);
  addList(command, "--kernel", options.kinds, "KERNEL",
          "Which kernels: auto (forward or decode, as operands of --shape take them; without --shape both),\n"
          "forward, backward (both passes of training), decode, block-mask. Forward and backward come with the\n"
          "kernel that builds their block mask, where they gain from one")
      ->capture_default_str()
      ->transform(
          oneOf({"auto", {"forward", {"fwd"}}, {"backward", {"bwd"}}, "decode", {"block-mask", {"blockmask"}}}));
  addRepeated(command, "--shape", options.shapes, kShapeName,
              "Problems that decide between forward and decode kernels; may be given again");
  addVInK(command, options.target.vInK)->excludes("--head-dim-v");
  options.target.fp8.addTo(command, /*draws=*/false);
  command.add_flag("--row-max", options.rowMax, "Launches may ask for the row maximum");
  command.add_flag("--block-sparse", options.blockSparse, "Launches are given a block mask (128 x 128)");
  command.add_flag("--no-block-mask", options.noBlockMask,
                   "Nothing builds a block mask, as PrepareOptions::buildBlockMask");
  options.sequences.addTo(command, "The kernels take a KV length for each sequence",
                          "K and V lie in pages of N rows: 1, 2, 4, 8, 16, 32, 64, 128, 256; --kv-lengths follows");
  options.sequences.addRagged(command, "The kernels take sequences that lie one behind the other, [total, H, D]");
  options.gradients.addTo(command);
  options.kernel.addTo(command);
  command.add_flag("--json", options.json, "Tell what was packed for programs");
  addFile(command, "-o,--output", options.output, "Where to: a file (appears whole or not at all), or -")->required();
  command.footer(
      R"(Options that are lists are combined, each with each. What has other options goes into another pack: a
process opens those of ATTNC_PACK=a.attnc:b.attnc, and takes kernels from them before it compiles or
looks into the cache. With ATTNC_NO_COMPILE=1, a kernel that was forgotten is an error that says
which it is. Kernels of e4m3 come with those that round to it, from the dtype of out.
A pack serves the version of attnc that made it. `attnc cache ls PACK` lists it, and
`attnc cache verify PACK` reads it whole. Needs no GPU.

Examples:
  attnc pack alibi.py causal.py --arch sm_80,sm_90a --head-dim 64,128 --kernel auto,backward -o kernels.attnc)");
}

} // namespace attnc::cli
