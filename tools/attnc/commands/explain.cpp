// `attnc explain`: shows which kernel a mod gets, what it costs, and how much of a problem its mask leaves.
#include "commands.h"
#include "output_file.h"
#include "problem/explain_options.h"
#include "problem/grid_text.h"
#include "problem/mask_problem.h"
#include "problem/mod_text.h"
#include "problem/operands.h"
#include "problem/shapes.h"
#include "progress.h"
#include "show/explanation.h"
#include "show/html_report.h"
#include "show/json_report.h"
#include "terminal.h"

#include "support/try.h"
#include "tools/device/device.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
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
  auto operands = fromFile ? findOperands(mod, options, Elements::OfMask) : drawCaptures(mod, options, *shape);
  if (!operands) return operands;
  shapes = fromFile ? shapesOf(*operands, options) : shapesOf(operands->problem, options.target, options.sequences);
  return operands;
}

std::string problemLine(const ProblemShape& problem) {
  return fmt::format("problem     B {}, H {}, HKV {}, Q_LEN {}, KV_LEN {}\n", problem.batch, problem.qHeads,
                     problem.kvHeads, problem.qLen, problem.kvLen);
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

/// Treats options that do not fit each other as wrong usage, unless a file is involved.
Error blamed(const ExplainOptions& options, Error error) {
  if (options.input.empty()) throwUsage("explain", error);
  return error;
}

/// Returns the output. The command line is already checked.
std::string explainText(const Mod& mod, const Explanation& all, const ProblemOptions& options) {
  const Plan& kernel = all.kernel();
  return fmt::format("mod         {}\nfunctions   {}\n", mod.name(), functionsText(mod)) + masksText(mod) +
         capturesText(mod) + kernelText(all, prepareOptions(options).family) + tileText(kernel) +
         kindText(all.preparation, all.sources) + problemLine(all.preparation.problem) +
         sequencesText(kernel.options()) + valuesLine(all.scalars, options) +
         workText(all.census, all.boxes, all.preparation, mod.hasMaskMod()) + operationsText(all.operations) +
         scoreText(all.perScore, kernel.kvLoop()) + gradientsText(all.gradients);
}

/// Writes the page.
Status writePage(const std::string& path, const Mod& mod, const Explanation& all) {
  ATTNC_TRY_AS(data, pageData(mod, all));
  return writeWholeFile(path, {htmlPage(*data)});
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
  auto settled = options.isBackward()
                     ? compiler.settleTraining(mod, shapes.operands, shapes.outputs, shapes.gradients, prepare)
                     : compiler.settle(mod, shapes.operands, shapes.outputs, prepare);
  if (!settled) return blamed(options, settled.error());
  const auto compiled = [&] { // so that explain() finds it in memory
    const Progress progress("compiling");
    return compiler.compile(settled->last());
  }();
  if (!compiled) return compiled.error();
  const Progress progress("counting blocks");
  return attnc::explain(compiler, *settled, operands->captures);
}

void addShape(CLI::App& command, ExplainOptions& options) {
  command
      .add_option_function<std::string>(
          "--shape",
          [&options](const std::string& text) {
            options.given = parseShape("--shape", text, kUsualShape);
            options.shape = options.given.shape;
          },
          "The problem, with or without a head dim; or only Q_LEN,KV_LEN, or one number for both. Default: "
          "1,16,16,8192,8192, with the lengths of the grid that the mod declares, and what is pinned")
      ->type_name(kShapeName);
}

namespace {

int runExplain(const ExplainOptions& options) {
  options.gradients.check(options.isBackward());
  options.sequences.check(!options.isBackward());
  if (options.input.empty()) options.target.check();
  if (const int rows = options.sequences.pageSize; rows && options.shape && options.shape->kvLen % rows)
    throw wrongUsage("--page-size", fmt::format("KV_LEN {} is no multiple of {}", options.shape->kvLen, rows),
                     fmt::format("take KV_LEN {}", (options.shape->kvLen / rows + 1) * rows));
  checkStdin(options);
  refuseOntoInput("--html", options.html, {options.mod.path, options.input});
  auto arch = options.target.archAsked();
  if (!arch) return reportEither(arch.error(), options.json);
  auto mod = options.mod.loadTelling();
  if (!mod) return reportEither(mod.error(), options.json);
  mod = pinned(*mod, options.kernel);
  if (!mod) return reportEither(mod.error(), options.json);
  const auto all = explanationOf(*mod, options, targetFor(*arch));
  if (!all) return reportEither(all.error(), options.json);
  auto status = !options.html.empty() ? writePage(options.html, *mod, *all)
                : options.json        ? printResult(toJson(*all))
                                      : printResult(reportText(explainText(*mod, *all, options)));
  return status ? kDone : report(status.error());
}

void addOptions(CLI::App& command, ExplainOptions& options) {
  options.mod.addTo(command);
  options.kernelKind.addTo(command, /*takesBackward=*/true);
  options.target.addTo(command);
  addShape(command, options);
  command.add_option("--in", options.input, "Take q, k, v and captures from a safetensors file, as run does; -: stdin")
      ->type_name("FILE")
      ->excludes("--shape")
      ->excludes("--dtype")
      ->excludes("--fp8-kv")
      ->excludes("--row-scales")
      ->excludes("--head-dim")
      ->excludes("--head-dim-v");
  command.add_option("--seed", options.seed, "Of captures that are drawn")->capture_default_str()->check(checkSeed);
  addSets(command, options.sets);
  options.sequences.addTo(
      command, "Forward, decode: the kernel takes a KV length for each sequence",
      "Forward, decode: K and V lie in pages of N rows: 1, 2, 4, 8, 16, 32, 64, 128, 256; --kv-lengths follows");
  options.sequences.addRagged(command, "The kernel takes sequences that lie one behind the other, [total, H, D]");
  options.gradients.addTo(command);
  options.kernel.addTo(command);
  command.add_flag("--json", options.json, "One JSON object instead, for programs");
  command
      .add_option("--html", options.html,
                  "A page instead, one file without network: mask, code, costs line by line. -: stdout")
      ->type_name("FILE")
      ->excludes("--json");
}

} // namespace

void addExplain(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command =
      app.add_subcommand("explain", "Show the kernel a mod gets, what it costs, and what its mask saves");
  addOptions(*command, *options);
  command->footer(
      "Without --arch: that of the GPU, or sm_90a where there is none. Needs libnvrtc, and no GPU. Captures that\n"
      "nothing gives are drawn, as run --random does.\n\n"
      "blocks: exact, or of a sample if \"about\" stands in front.\n\n"
      "operations: those of the IR, at the outermost level where they are known: once a launch, (batch, head), q row,\n"
      "kv column, or for each score. per score: without what the kernel moves out of its inner loop.\n\n"
      "FLOPs: a backward pass counts 2.5 times the forward one, five products instead of two.\n\n"
      "gradients: what each capture's gradient adds to memory. They have launches of their own behind those of dq, dk\n"
      "and dv.\n\n"
      "Examples:\n"
      "  attnc explain alibi.py --head-dim 64 --shape 2,32,8,4096,4096\n"
      "  attnc explain alibi.py --kernel backward --arch sm_80");
  command->callback([command, options, &exitCode] {
    options->target.headDim = headDimOf(options->given, *command, options->target.headDim);
    exitCode = runExplain(*options);
  });
}

} // namespace attnc::cli
