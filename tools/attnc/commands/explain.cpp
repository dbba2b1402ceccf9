// `attnc explain`: shows which kernel a mod gets, what it costs, and how much of a problem its mask leaves.
#include "commands/command.h"
#include "output_file.h"
#include "problem/explain_options.h"
#include "problem/grid_text.h"
#include "problem/mask_problem.h"
#include "problem/mod_text.h"
#include "problem/operands.h"
#include "problem/shapes.h"
#include "progress.h"
#include "show/cost_changes.h"
#include "show/explanation.h"
#include "show/html_report.h"
#include "terminal.h"
#include "text.h"

#include "support/try.h"
#include "tools/device/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace attnc::cli {
namespace {

/// Returns the shape of the problem. Lengths of a declared grid and pinned lengths need not be given again.
Expected<ProblemShape> shapeFor(const Mod& mod, const ExplainOptions& options) {
  if (options.shape) return *options.shape;
  auto shape = onDeclaredGrids(mod, options, kUsualShape);
  if (!shape) return shape;
  const std::map<std::string, int64_t> pins = options.kernel.toOptions().pins;
  for (auto [name, extent] :
       {std::pair("B", &shape->batch), std::pair("H", &shape->qHeads), std::pair("HKV", &shape->kvHeads),
        std::pair("Q_LEN", &shape->qLen), std::pair("KV_LEN", &shape->kvLen)})
    if (auto pin = pins.find(name); pin != pins.end()) *extent = pin->second;
  return shape;
}

/// Reads or draws the problem. `shapes` receives the shapes that a kernel is chosen for.
Expected<HostOperands> findProblem(const Mod& mod, const ExplainOptions& options, Shapes& shapes) {
  const bool fromFile = !options.input.empty();
  ATTNC_TRY_AS(shape, shapeFor(mod, options));
  auto operands = fromFile ? findOperands(mod, options, Elements::OfMask)
                           : findCaptures(mod, options, {.shape = *shape, .elements = Elements::OfMask});
  if (!operands) return operands;
  shapes = fromFile ? shapesOf(*operands, options) : shapesOf(operands->problem, options.target, options.sequences);
  return operands;
}

/// Returns the line of run-time scalars, because the mask's blocks depend on them, and which of them were drawn.
std::string valuesLine(const Captures& captures, const ProblemOptions& options) {
  const std::string values = valuesText(captures);
  if (values.empty()) return "";
  std::string drawn;
  const std::map<std::string, int64_t> pins = options.kernel.toOptions().pins;
  for (const auto& [name, value] : captures.all()) {
    const bool isGiven =
        !options.input.empty() || std::holds_alternative<TensorView>(value) || pins.count(name) || isSet(options, name);
    if (!isGiven) drawn += (drawn.empty() ? "" : ", ") + name;
  }
  return "values      " + values + (drawn.empty() ? "\n" : "; drawn without --set: " + drawn + "\n");
}

/// Returns the sequence options of the kernels, and the lengths assumed for the counts of blocks.
std::string sequencesText(const KernelOptions& kernel) {
  std::string text = kernel.features.has(Feature::Lengths) ? "KV lengths, counted below as full" : "";
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  if (kernel.pageSize) add(fmt::format("pages of {} rows", kernel.pageSize));
  if (kernel.offsets == QueryOffsets::FromLengths) add("the last query at the last key");
  if (kernel.features.has(Feature::Ragged)) add("packed, counted below as full");
  if (kernel.offsets == QueryOffsets::Tensor) add("positions of queries, counted below from 0");
  return text.empty() ? text : fmt::format("sequences   {}\n", text);
}

/// Returns the output. The command line is already checked.
std::string explainText(const Mod& mod, const Explanation& all, const ProblemOptions& options) {
  const Plan& kernel = all.kernel();
  return fmt::format("mod         {}\nfunctions   {}\n", mod.name(), functionsText(mod)) + masksText(mod) +
         capturesText(mod) + kernelText(all, prepareOptions(options).family) + tileText(kernel) +
         kindText(all.preparation, all.sources) +
         fmt::format("problem     {}\n", extentsText(all.preparation.problem)) + sequencesText(kernel.options()) +
         valuesLine(all.scalars, options) + workText(all.census, all.boxes, all.preparation, mod.hasMaskMod()) +
         operationsText(all.operations, mod) + variantsText(all.variants) + perVariantText(all) +
         scoreText(all.perScore, kernel.kvLoop()) + gradientsText(all.gradients) + timesText(all);
}

/// Writes the page.
Status writePage(const std::string& path, const Mod& mod, const Explanation& all) {
  ATTNC_TRY_AS(data, pageData(mod, all));
  return writeWholeFile(path, {htmlPage(*data)});
}

/// Returns the options for a mod that is compared with another one. Values of captures that only the other has are left
/// out.
ExplainOptions optionsOf(const Mod& mod, const Mod& other, ExplainOptions options) {
  const auto captures = [](const Mod& one, const std::string& name) {
    const std::vector<CaptureInfo> all = one.captures();
    return std::any_of(all.begin(), all.end(), [&](const CaptureInfo& capture) { return capture.name == name; });
  };
  std::erase_if(options.sets, [&](const std::string& set) {
    const std::string name = set.substr(0, set.find('='));
    return !captures(mod, name) && captures(other, name);
  });
  return options;
}

/// Prints what changes in cost from the mod to that of the other file.
Status compareCosts(const Mod& mod, const ExplainOptions& options, const Target& target) {
  ModOptions ofNewer = options.mod;
  ofNewer.path = options.newer;
  ATTNC_TRY_AS(text, ofNewer.loadTelling());
  ATTNC_TRY_AS(newer, pinned(*text, options.kernel));
  ATTNC_TRY_AS(before, explanationOf(mod, optionsOf(mod, *newer, options), target));
  ATTNC_TRY_AS(after, explanationOf(*newer, optionsOf(*newer, mod, options), target));
  return printResult(options.json ? changesJson(*before, *after).dump(2) + "\n" : changesText(*before, *after));
}

Status runExplain(ExplainOptions& options) {
  options.target.headDim = headDimOf(options.given, *options.owner, options.target.headDim);
  options.gradients.check(options.isBackward());
  options.sequences.check(!options.isBackward());
  if (options.input.empty()) options.target.check();
  if (options.shape) options.sequences.checkPages(options.shape->kvLen);
  checkStdin(options);
  refuseOntoInput("--html", options.html, {options.mod.path, options.input});
  ATTNC_TRY_AS(arch, options.target.archAsked());
  ATTNC_TRY_AS(text, options.mod.loadTelling());
  ATTNC_TRY_AS(mod, pinned(*text, options.kernel));
  if (!options.newer.empty()) return compareCosts(*mod, options, targetFor(*arch));
  ATTNC_TRY_AS(all, explanationOf(*mod, options, targetFor(*arch)));
  if (!options.html.empty()) return writePage(options.html, *mod, *all);
  return printResult(options.json ? toJson(*all) : reportText(explainText(*mod, *all, options)));
}

} // namespace

Target targetFor(const std::string& asked) {
  auto context = device::Context::create();
  if (!context) return {asked.empty() ? "sm_90a" : asked, {}};
  const std::string& here = context->info().arch;
  if (asked.empty() || asked == here) return {here, context->info().name};
  return {asked, {}};
}

Expected<Explanation> explanationOf(const Mod& mod, const ExplainOptions& options, const Target& target) {
  Shapes shapes;
  ATTNC_TRY_AS(operands, findProblem(mod, options, shapes));
  if (options.isBackward()) {
    const bool reads = !options.gradients.ofOutputs(mod).empty();
    for (const CaptureInfo& each : reads ? mod.reductionGradients() : std::vector<CaptureInfo>())
      operands->captures.set(
          each.name,
          HostTensor{DType::F32, outputShape(each, operands->problem, shapes.operands.q, shapes.operands.k), {}}
              .view());
    ATTNC_TRY_AS(gradients, gradientsAsked(mod, options.gradients, *operands));
    operands->gradients = *std::move(gradients);
  }
  shapes.operands.captures = &operands->captures;
  shapes.gradients.captures = &operands->gradients;

  CompilerOptions compilerOptions = options.kernel.toCompilerOptions();
  compilerOptions.tunedDevice = target.device;
  Compiler compiler(std::move(compilerOptions));
  PrepareOptions prepare = prepareOptions(options);
  prepare.arch = target.arch;
  auto settled = settle(compiler, mod, shapes, prepare, options.isBackward());
  if (!settled && options.input.empty()) throwUsage("explain", settled.error()); // only the options decide this
  if (!settled) return settled.error();
  ATTNC_TRY_AS(compiled, withProgress("compiling", [&] { return compiler.compile(settled->last()); }));
  // which explain() finds in memory
  return withProgress("counting blocks", [&] { return attnc::explain(compiler, *settled, operands->captures); });
}

void addKernel(CLI::App& command, ExplainOptions& options) {
  options.owner = &command;
  options.kernelKind.addTo(command, /*takesBackward=*/true);
  options.target.addTo(command);
  addParsed(
      command, "--shape",
      [&options](const std::string& text) {
        options.given = parseShape("--shape", text, kUsualShape);
        options.shape = options.given.shape;
      },
      kShapeName,
      "The problem, with or without a head dim; or only Q_LEN,KV_LEN, or one number for both. Default: "
      "1,16,16,8192,8192, with the lengths of the grid that the mod declares, and what is pinned");
}

void addExplain(CLI::App& app, int& exitCode) {
  auto [command, options] = addCommand<ExplainOptions>(
      app, exitCode, "explain", "Show the kernel a mod gets, what it costs, and what its mask saves", runExplain);
  options.mod.addTo(command);
  addOption(command, "new", options.newer, "NEW", "Another file with a mod: what changes in cost from MOD to NEW");
  addKernel(command, options);
  excludes(addFile(command, "--in", options.input,
                   "Take q, k, v and captures from a safetensors file, as run does; -: stdin"),
           {"--shape", "--dtype", "--fp8-kv", "--row-scales", "--head-dim", "--head-dim-v"});
  command.add_option("--seed", options.seed, "Of captures that are drawn")->capture_default_str()->check(checkSeed);
  addSets(command, options.sets);
  options.sequences.addTo(
      command, "The kernel takes a KV length for each sequence",
      "Forward, decode: K and V lie in pages of N rows: 1, 2, 4, 8, 16, 32, 64, 128, 256; --kv-lengths follows");
  options.sequences.addRagged(command, "The kernel takes sequences that lie one behind the other, [total, H, D]");
  options.gradients.addTo(command);
  options.kernel.addTo(command);
  command.add_flag("--json", options.json, "One JSON object instead, for programs");
  addFile(command, "--html", options.html,
          "A page instead, one file without network: mask, code, costs line by line. -: stdout")
      ->excludes("--json")
      ->excludes("new");
  command.footer(
      R"(Without --arch: that of the GPU, or sm_90a where there is none. Needs libnvrtc, and no GPU. Captures that
nothing gives are drawn, as run --random does.

blocks: exact, or of a sample if "about" stands in front.

operations: those of the IR, at the outermost level where they are known: once a launch, (batch, head), q row,
kv column, or for each score. per score: without what the kernel moves out of its inner loop.

FLOPs: a backward pass counts 2.5 times the forward one, five products instead of two.

time: of the kernel of these passes, as bench/results measured it. Errors are those of rows that were left out of the
fit.

gradients: what each capture's gradient adds to memory. They have launches of their own behind those of dq, dk
and dv.

reads: gradients of sums of the mod, which kernels take unless --gradients leaves them out. If some are slow, the kernel's
line says which family does not take them, and why.

Examples:
  attnc explain alibi.py --head-dim 64 --shape 2,32,8,4096,4096
  attnc explain alibi.py --kernel backward --arch sm_80
  attnc explain old.py new.py --shape 2,16,16,8192,8192)");
}

} // namespace attnc::cli
