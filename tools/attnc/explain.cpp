// `attnc explain`: which kernel a mod gets, what it costs, and how much of a problem its mask leaves to compute.
#include "commands.h"
#include "explanation.h"
#include "mod_text.h"
#include "operands.h"

#include "api/mask_census.h"
#include "api/mask_shape.h"
#include "api/mod_impl.h"
#include "tools/device/device.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <variant>

namespace attnc::cli {
namespace {

struct ExplainOptions {
  RunOptions run; // mod, kernel, input, sets, seed
  TargetOptions target;
  std::optional<ProblemShape> shape;
};

/// The first GPU's; sm_90a where there is none.
std::string archHere() {
  auto context = device::Context::create();
  return context ? context->info().arch : "sm_90a";
}

/// What is pinned need not be said twice: pinned lengths shape the problem.
ProblemShape shapeFor(const ExplainOptions& options, const std::map<std::string, int64_t>& pins) {
  if (options.shape) return *options.shape;
  ProblemShape shape{1, 16, 16, 8192, 8192};
  for (auto [name, extent] :
       {std::pair("B", &shape.batch), std::pair("H", &shape.qHeads), std::pair("HKV", &shape.kvHeads),
        std::pair("Q_LEN", &shape.qLen), std::pair("KV_LEN", &shape.kvLen)})
    if (auto pin = pins.find(name); pin != pins.end()) *extent = pin->second;
  return shape;
}

/// The problem, from the file or drawn; `kernel` receives what the file says about q, k and v.
Expected<HostOperands> findProblem(const Mod& mod, const ExplainOptions& options, KernelOptions& kernel) {
  if (options.run.input.empty()) return drawCaptures(mod, options.run, shapeFor(options, kernel.pins));
  auto operands = findOperands(mod, options.run, Elements::OfMask);
  if (!operands) return operands;
  std::string arch = std::move(kernel.arch);
  kernel = kernelOptions(options.run, *operands);
  kernel.arch = std::move(arch);
  return operands;
}

std::string problemText(const ProblemShape& problem) {
  return fmt::format("problem     B {}, H {}, HKV {}, Q_LEN {}, KV_LEN {}\n", problem.batch, problem.qHeads,
                     problem.kvHeads, problem.qLen, problem.kvLen);
}

/// The run-time scalars, given or drawn: the mask's blocks depend on them.
std::string valuesText(const Captures& captures) {
  std::string text;
  for (const auto& [name, value] : captures.all()) {
    if (std::holds_alternative<TensorView>(value)) continue;
    text += fmt::format("{}{} = ", text.empty() ? "values      " : ", ", name);
    if (auto integer = std::get_if<int64_t>(&value)) text += fmt::to_string(*integer);
    if (auto real = std::get_if<double>(&value)) text += fmt::format("{:g}", *real);
    if (auto flag = std::get_if<bool>(&value)) text += *flag ? "True" : "False";
  }
  return text.empty() ? text : text + "\n";
}

Expected<KvLoop> kvLoop(const Compiler& compiler, const Mod& mod, const KernelOptions& kernel) {
  auto wantsMask = compiler.wantsBlockMask(mod, kernel);
  if (!wantsMask) return std::move(wantsMask).error();
  if (*wantsMask) return KvLoop::BlockMask;
  auto kernelMod = kernelModOf(mod, plan::algebraFor(kernel));
  if (!kernelMod) return kernelMod.error();
  return (*kernelMod)->facts.masks ? KvLoop::Bounds : KvLoop::AllTiles;
}

/// An error of options that do not fit each other: wrong usage, unless a file has a say in it.
Error blamed(const ExplainOptions& options, Error error) {
  if (options.run.input.empty()) throwUsage("explain", error);
  return error;
}

/// Everything after the command line is understood. `mod` has its pins folded in.
Expected<std::string> explain(const Mod& mod, const ExplainOptions& options, KernelOptions kernel) {
  auto operands = findProblem(mod, options, kernel);
  if (!operands) return std::move(operands).error();
  const ProblemShape& problem = operands->problem;
  auto bindings = ir::bind(mod.module(), operands->captures, problem);
  if (!bindings) return std::move(bindings).error();
  if (auto status = checkPins(mod.module(), *bindings, kernel.pins); !status) return blamed(options, status.error());

  Compiler compiler(options.run.kernel.toCompilerOptions());
  kernel.maskQBlock = kernel.maskKvBlock = kBlock;
  if (auto served = choosePlan(mod, kernel); !served) return blamed(options, served.error());
  auto loop = kvLoop(compiler, mod, kernel);
  if (!loop) return std::move(loop).error();
  kernel.blockSparse = *loop == KvLoop::BlockMask;
  auto plan = choosePlan(mod, kernel);
  if (!plan) return std::move(plan).error();
  auto kernelMod = kernelModOf(mod, plan->stages.front().algebra);
  if (!kernelMod) return std::move(kernelMod).error();
  auto compiled = compiler.compile(mod, kernel);
  if (!compiled) return std::move(compiled).error();
  const MaskCensus census = takeCensus(mod.module(), *bindings, smallestMask(mod.module(), problem, kBlock, kBlock));
  return fmt::format("mod         {}\nfunctions   {}\n", mod.name(), functionsText(mod)) + masksText(mod) +
         capturesText(mod) + kernelText(*plan, kernel, **compiled) + problemText(problem) +
         valuesText(operands->captures) + workText(census, problem, *plan, *loop) + operationsText(mod.module()) +
         scoreText((*kernelMod)->module, *loop);
}

int runExplain(const ExplainOptions& options) {
  checkStdin(options.run);
  KernelOptions kernel = options.run.kernel.toOptions();
  if (auto status = options.target.fill(kernel); !status) return report(status.error());
  auto mod = options.run.mod.load();
  if (!mod) return report(mod.error());
  if (kernel.arch.empty()) kernel.arch = archHere();
  mod = pinned(*mod, options.run.kernel);
  if (!mod) return report(mod.error());
  mod = forwardMod(*mod);
  if (!mod) return report(mod.error());
  auto text = explain(*mod, options, kernel);
  if (!text) return report(text.error());
  auto status = printResult(*text);
  return status ? kDone : report(status.error());
}

void addOptions(CLI::App& command, ExplainOptions& options) {
  options.run.mod.addTo(command);
  options.target.addTo(command);
  command
      .add_option_function<std::string>(
          "--shape",
          [&options](const std::string& text) {
            options.shape = shapeOf("--shape", text, parseExtents("--shape", text, "B,H,HKV,Q_LEN,KV_LEN"));
          },
          "The problem; default 1,16,16,8192,8192 and what is pinned")
      ->type_name("B,H,HKV,Q_LEN,KV_LEN");
  command
      .add_option("--in", options.run.input, "Take q, k, v and captures from a safetensors file, as run does; -: stdin")
      ->type_name("FILE")
      ->excludes("--shape")
      ->excludes("--dtype")
      ->excludes("--head-dim")
      ->excludes("--head-dim-v");
  command.add_option("--seed", options.run.seed, "Of captures that are drawn")->capture_default_str()->check(checkSeed);
  addSets(command, options.run.sets);
  options.run.kernel.addTo(command);
}

} // namespace

void addExplain(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command =
      app.add_subcommand("explain", "Show the kernel a mod gets, what it costs, and what its mask saves");
  addOptions(*command, *options);
  command->footer(
      "Without --arch: that of the GPU, or sm_90a where there is none. Compiling needs libnvrtc, and no GPU.\n"
      "Captures that neither --set, --pin nor a file gives are drawn, as run --random does (attnc run --help).\n"
      "Counts of blocks are exact unless \"about\" stands in front of them: then they come from a sample, whose size "
      "is\n"
      "told.\n"
      "Operations are those of the IR, at the outermost level where they are known: once a launch, (batch, head), q\n"
      "row, kv column, or for each score; the compiler may fuse some, and some take several instructions. What stands\n"
      "per score is less where the kernel moves factors and terms of the mod out of its inner loop, as sm90 does.\n\n"
      "Example: attnc explain alibi.py --head-dim 64 --shape 2,32,8,4096,4096");
  command->callback([options, &exitCode] { exitCode = runExplain(*options); });
}

} // namespace attnc::cli
