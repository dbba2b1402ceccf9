// `attnc emit`: prints one stage of the way from a mod to machine code, to a file or stdout.
#include "commands/command.h"
#include "commands/disassemble.h"
#include "output_file.h"
#include "problem/launcher_options.h"
#include "progress.h"
#include "text.h"

#include "attnc/explain.h"
#include "attnc/stages.h"
#include "support/try.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/STLExtras.h>

#include <optional>
#include <set>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace attnc::cli {
namespace {

struct EmitOptions : ProblemOptions {
  std::string stage, kind = "forward", printAfter;
  std::optional<int> launch; ///< counted from 1
  bool blockSparse = false;
  LauncherOptions launcher;

  EmitOptions() { target.arch = "sm_90a"; }
};

KernelKind kindOf(std::string_view name) {
  if (name == "backward") return KernelKind::Backward;
  if (name == "decode") return KernelKind::Decode;
  return name == "block-mask" ? KernelKind::BlockMask : KernelKind::Forward;
}

/// Returns the options of the kernel. `mod` has its pins folded in.
Expected<KernelOptions> kernelOptions(const Mod& mod, const EmitOptions& options) {
  ATTNC_TRY_AS(arch, options.target.archAsked());
  const PrepareOptions flags = options.kernel.toOptions();
  std::set<std::string> gradients;
  Features features;
  if (kindOf(options.kind) == KernelKind::Backward) {
    features.set(Feature::Reductions, !options.gradients.ofOutputs(mod).empty());
    ATTNC_TRY_AS(wanted, options.gradients.wanted(mod, features.has(Feature::Reductions)));
    gradients = *std::move(wanted);
  }
  const DType ofQ = dtypeOf(options.target.dtype);
  features.set(Feature::Fp8Q, ofQ == DType::E4M3);
  features.set(Feature::Fp8Kv, options.target.fp8.kv || ofQ == DType::E4M3);
  features.set(Feature::RowScales, options.target.fp8.areOfRows());
  features.set(Feature::VInK, options.target.vInK != 0);
  features.set(Feature::Lengths, options.sequences.lengths());
  features.set(Feature::Ragged, options.sequences.ragged);
  features.set(Feature::Deterministic, options.gradients.deterministic);
  KernelOptions kernel{.kind = kindOf(options.kind),
                       .family = flags.family,
                       .arch = *std::move(arch),
                       .dtype = options.target.fp8.outOf(ofQ),
                       .headDim = options.target.headDim,
                       .headDimV = options.target.vInK ? options.target.vInK : options.target.headDimV,
                       .features = features,
                       .blockSparse = options.blockSparse,
                       .offsets = options.sequences.settledOffsets(),
                       .pageSize = options.sequences.pageSize,
                       .pins = flags.pins,
                       .gradients = std::move(gradients),
                       .tile = flags.tile};
  copyChoices(flags, kernel);
  return kernel;
}

/// Throws if --launch names no launch, or if a cubin needs one and none is named.
void checkLaunch(const EmitOptions& options, const std::vector<KernelSource>& launches) {
  const int count = int(launches.size());
  std::string names;
  for (int i = 0; i < count; ++i) names += fmt::format("{}{} {}", i ? ", " : "", i + 1, launches[size_t(i)].entry);
  if (options.launch && (*options.launch < 1 || *options.launch > count))
    throw wrongUsage("--launch", fmt::format("there is no launch {}; the kernel has {}", *options.launch, names),
                     "count from 1: --launch 1");
  if (!options.launch && (options.stage == "cubin" || options.stage == "sass") && count > 1)
    throw wrongUsage("--launch",
                     fmt::format("{} is of one launch, choose one of {}: {}",
                                 options.stage == "sass" ? options.stage : "a cubin", count, names),
                     fmt::format("e.g. --launch 1 -o 1.{}, and so on for each", options.stage));
}

/// Returns the requested launches, in order.
template <class T> std::vector<T> chosen(std::vector<T> launches, const EmitOptions& options) {
  if (!options.launch) return launches;
  return {launches[size_t(*options.launch - 1)]};
}

/// Returns what a program needs to know of a kernel that is emitted.
JsonReport kernelJson(const KernelOptions& kernel) {
  return {{"kind", std::string(kindName(kernel.kind))},
          {"family", familyName(kernel.family)},
          {"arch", kernel.arch},
          {"dtype", dtypeName(kernel.dtype)},
          {"headDim", kernel.headDim},
          {"headDimV", kernel.headDimV}};
}

/// Returns the bytes of the requested stage: for a kernel of several launches, of all in order, unless one is chosen.
/// `facts` receives what --json tells of it.
Expected<std::string> stageOf(const EmitOptions& options, JsonReport& facts) {
  ATTNC_TRY_AS(mod, options.mod.loadTelling());
  facts["mod"] = mod->name();
  if (options.stage == "ast") {
    if (!mod->astText().empty()) return mod->astText();
    throw wrongUsage("--stage", "a mod given as IR has no ast", "give the text of the mod, or --stage ir");
  }
  mod = pinned(*mod, options.kernel);
  if (!mod) return std::move(mod).error();
  if (options.stage == "ir") {
    KernelOptions sequences{.offsets = options.sequences.settledOffsets(), .pins = options.kernel.toOptions().pins};
    sequences.features.set(Feature::Lengths, options.sequences.lengths());
    sequences.features.set(Feature::Ragged, options.sequences.ragged);
    return sequencesIrText(*mod, sequences);
  }
  if (options.stage == "grad-ir") return gradientIrText(*mod);

  ATTNC_TRY_AS(asked, kernelOptions(*mod, options));
  const Compiler compiler(options.kernel.toCompilerOptions());
  const auto plan = compiler.plan(*mod, *asked);
  if (!plan) throwUsage("emit", plan.error()); // only the options decide whether there is a kernel
  if (!plan) return plan.error();
  if (!options.printAfter.empty()) {
    auto text = irTextAfter(*plan, options.printAfter);
    if (!text) throwUsage("--print-after", text.error()); // only the options decide which passes run
    return text;
  }
  if (options.stage == "kernel-ir") return kernelIrText(*plan);
  ATTNC_TRY_AS(sources, plan->sources());
  checkLaunch(options, *sources);
  facts["kernel"] = kernelJson(plan->options());
  std::vector<KernelSource> told = chosen(*sources, options);
  Launcher launcher;
  CudaFileOptions file{.launch = options.launch.value_or(0)};
  if (options.launcher.isAsked) {
    ATTNC_TRY(options.launcher.fill(launcher, *mod, options, plan->options()));
    file.launcher = &launcher.shape;
  }
  if (options.stage == "cu") {
    ATTNC_TRY_AS(inFile, cudaFileLaunches(*plan, file));
    told = *std::move(inFile);
  }
  for (const KernelSource& source : told)
    facts["launches"].push_back(
        {{"entry", source.entry}, {"template", source.templateName}, {"threads", source.threads}});
  if (options.stage == "mod") return modText(*plan, options.launch.value_or(0));
  if (options.stage == "cu") {
    auto text = cudaFile(*plan, file);
    if (!text) throwUsage("--launcher", text.error()); // the kernel itself is served
    return text;
  }
  ATTNC_TRY_AS(stages, withProgress("compiling", [&] { return compiler.compile(*plan); }));
  size_t launch = 0;
  for (const auto& stage : chosen(*stages, options))
    facts["launches"][launch++].update({{"registers", stage->registers},
                                        {"spillBytes", stage->spillBytes},
                                        {"sharedBytes", stage->staticSharedBytes + stage->dynamicSharedBytes}});
  std::vector<std::string> programs;
  for (const auto& stage : chosen(*stages, options))
    programs.push_back(options.stage == "ptx" ? stage->ptx : std::string(stage->cubin.begin(), stage->cubin.end()));
  if (options.stage == "sass") return disassembled(programs.front());
  return fmt::to_string(fmt::join(programs, ""));
}

/// Throws for options that do not fit each other.
void checkStage(const EmitOptions& options) {
  if (options.stage.empty() && options.printAfter.empty())
    throw wrongUsage("--stage", "say which stage to print",
                     "ast, ir, grad-ir, kernel-ir, mod, cu, ptx, cubin or sass: --stage cu is a CUDA file");
  if (!options.stage.empty() && !options.printAfter.empty())
    throw wrongUsage("--print-after", "it stands instead of --stage", "leave out one of them");
  options.launcher.check(options, options.stage, options.launch.has_value());
  const std::vector<std::string> passes = passNames();
  const std::string& pass = options.printAfter;
  if (pass.empty() || pass == "all" || llvm::is_contained(passes, pass)) return;
  const std::string near = didYouMean(pass, passes, "");
  throw wrongUsage("--print-after", fmt::format("there is no pass {}", inQuotes(pass)),
                   fmt::format("{}there are all, {}", near.empty() ? "" : near + " ", fmt::join(passes, ", ")));
}

Status runEmit(const EmitOptions& options) {
  checkStage(options);
  options.target.check();
  options.gradients.check(kindOf(options.kind) == KernelKind::Backward);
  const KernelKind kind = kindOf(options.kind);
  options.sequences.check(kind != KernelKind::Backward && options.stage != "grad-ir");
  static const std::set<std::string> kOfLaunches{"mod", "cu", "ptx", "cubin", "sass"};
  if (options.launch && !kOfLaunches.count(options.stage))
    throw wrongUsage("--launch", options.stage + " is of the whole kernel",
                     "leave --launch out; --stage mod, cu, ptx, cubin and sass take one");
  bool toStdout = options.output.empty() || options.output == "-";
  if (toStdout && !options.json && options.stage == "cubin" && isatty(STDOUT_FILENO))
    throw wrongUsage("--stage cubin", "a cubin is binary, and stdout is a terminal",
                     "give a file, -o kernel.cubin, or redirect stdout");
  refuseOntoInput("-o", toStdout ? "-" : options.output, {options.mod.path});
  if (options.json && options.output == "-")
    throw wrongUsage("--json", "stdout would carry the stage and its facts", "give the stage a file: -o FILE");
  JsonReport facts{{"ok", true}, {"stage", options.stage}};
  ATTNC_TRY_AS(bytes, stageOf(options, facts));
  if (!options.json) return toStdout ? printResult(*bytes) : writeWholeFile(options.output, {*bytes});
  facts["bytes"] = bytes->size();
  if (!options.output.empty()) {
    facts["output"] = options.output;
    ATTNC_TRY(writeWholeFile(options.output, {*bytes}));
  }
  return printResult(jsonText(facts));
}

} // namespace

void addEmit(CLI::App& app, int& exitCode) {
  auto [command, options] = addCommand<EmitOptions>(
      app, exitCode, "emit", "Print a stage of the compilation: ast, ir, grad-ir, kernel-ir, mod, cu, ptx, cubin, sass",
      runEmit);
  options.mod.addTo(command);
  addChoice(command, "--stage", options.stage, "STAGE",
            {"ast", "ir", {"grad-ir", {"grad"}}, "kernel-ir", "mod", {"cu", {"cuda"}}, "ptx", "cubin", "sass"},
            "ast: as parsed; ir: the mod after all passes; grad-ir: with gradients of score and captures;\n"
            "kernel-ir: with what is derived for the kernel; mod: the CUDA text that is generated from the mod;\n"
            "cu: one CUDA file that needs nothing else, with how to compile and launch it; ptx; cubin;\n"
            "sass: disassembled by nvdisasm or cuobjdump.\n"
            "ptx of a kernel of several launches: one behind the other, in order");
  options.launcher.addTo(command, options);
  addOption(command, "--print-after", options.printAfter, "PASS",
            "Instead of --stage: the IR after each run of this pass, or after every pass (all)");
  addChoice(command, "--kernel", options.kind, "KERNEL",
            {{"forward", {"fwd"}}, {"backward", {"bwd"}}, "decode", {"block-mask", {"blockmask"}}},
            "Which kernel: forward, backward (gradients), decode (few queries over long KV), or block-mask (evaluates\n"
            "mask_mod by tiles)");
  addOption(command, "--launch", options.launch, "N",
            "mod, cu, ptx, cubin, sass: only this launch of a kernel of several, counted from 1; explain lists them");
  options.target.addTo(command);
  command.add_flag("--block-sparse", options.blockSparse, "The kernel walks the lists of a block mask (128 x 128)");
  options.sequences.addTo(
      command, "The kernel takes a KV length for each sequence; ir shows what of it",
      "Forward, decode: K and V lie in pages of N rows: 1, 2, 4, 8, 16, 32, 64, 128, 256; --kv-lengths follows");
  options.sequences.addRagged(command, "The kernel takes sequences that lie one behind the other, [total, H, D]");
  options.gradients.addTo(command);
  options.kernel.addTo(command);
  addFile(command, "-o,--output", options.output, "Where to: a file (appears whole or not at all); default stdout, -");
  command.add_flag("--json", options.json,
                   "Tell what was emitted, for programs: kernel, launches, registers, bytes. The stage itself goes "
                   "only to -o");
  command.footer("Needs no GPU; ptx and cubin need libnvrtc.\n\nExamples:\n"
                 "  attnc emit alibi.py --stage ptx --arch sm_90a --dtype bf16 --head-dim 128 -o alibi.ptx");
}

} // namespace attnc::cli
