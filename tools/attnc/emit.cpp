// `attnc emit`: one stage of the way from a mod to machine code, as a file or on stdout.
#include "commands.h"
#include "options.h"
#include "output_file.h"

#include "ir/printer.h"
#include "passes/autodiff.h"

#include <fmt/format.h>

#include <memory>
#include <unistd.h>

namespace attnc::cli {
namespace {

struct EmitOptions {
  ModOptions mod;
  TargetOptions target{.arch = "sm_90a"};
  KernelFlags kernel;
  std::string stage, kind = "forward", output;
  bool blockSparse = false;
};

Expected<KernelOptions> kernelOptions(const EmitOptions& options) {
  KernelOptions kernel = options.kernel.toOptions();
  kernel.kind = options.kind == "block-mask" ? KernelKind::BlockMask : KernelKind::Forward;
  kernel.blockSparse = options.blockSparse;
  if (auto status = options.target.fill(kernel); !status) return status.error();
  return kernel;
}

/// The module with gradients of the score and of all captures that can have one.
Expected<std::string> gradientIrText(const Mod& mod) {
  auto gradients = passes::differentiate(mod.module(), passes::floatCaptures(mod.module()));
  if (!gradients) return std::move(gradients).error();
  return ir::print(gradients->module);
}

/// The bytes of the stage that is asked for.
Expected<std::string> emit(const EmitOptions& options) {
  auto mod = options.mod.load();
  if (!mod) return std::move(mod).error();
  if (options.stage == "ast") {
    if (!mod->astText().empty()) return mod->astText();
    throw CLI::ValidationError("--stage", "a mod given as IR has no ast");
  }
  mod = pinned(*mod, options.kernel);
  if (!mod) return std::move(mod).error();
  if (options.stage == "ir") return mod->irText();
  if (options.stage == "grad-ir") return gradientIrText(*mod);

  Compiler compiler(options.kernel.toCompilerOptions());
  auto chosen = kernelOptions(options);
  if (!chosen) return std::move(chosen).error();
  const KernelOptions& kernel = *chosen;
  auto source = compiler.source(*mod, kernel);
  if (!source) throwUsage("emit", source.error()); // nothing but the options decides whether there is a kernel
  if (!source) return std::move(source).error();
  if (options.stage == "cu") return source->flattened();
  auto compiled = compiler.compile(*mod, kernel);
  if (!compiled) return std::move(compiled).error();
  const CompiledKernel& result = **compiled;
  return options.stage == "ptx" ? result.ptx : std::string(result.cubin.begin(), result.cubin.end());
}

int runEmit(const EmitOptions& options) {
  bool toStdout = options.output.empty() || options.output == "-";
  if (toStdout && options.stage == "cubin" && isatty(STDOUT_FILENO))
    throw CLI::ValidationError("--stage cubin", "a cubin is binary: give a file with -o, or redirect stdout");
  refuseOntoInput("-o", toStdout ? "-" : options.output, {options.mod.path});
  auto bytes = emit(options);
  if (!bytes) return report(bytes.error());
  auto status = toStdout ? printResult(*bytes) : writeWholeFile(options.output, {*bytes});
  return status ? kDone : report(status.error());
}

} // namespace

void addEmit(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<EmitOptions>();
  CLI::App* command = app.add_subcommand("emit", "Print a stage of the compilation: ast, ir, grad-ir, cu, ptx, cubin");
  options->mod.addTo(*command);
  command
      ->add_option("--stage", options->stage,
                   "ast: as parsed; ir: after all passes; grad-ir: with gradients of score and captures; cu: one "
                   "self-contained CUDA file; ptx; cubin")
      ->type_name("STAGE")
      ->required()
      ->transform(
          oneOf({{"ast", {}}, {"ir", {}}, {"grad-ir", {"grad"}}, {"cu", {"cuda"}}, {"ptx", {}}, {"cubin", {}}}));
  command->add_option("--kernel", options->kind, "Which kernel: forward, or block-mask (evaluates mask_mod by tiles)")
      ->type_name("KERNEL")
      ->capture_default_str()
      ->transform(oneOf({{"forward", {"fwd"}}, {"block-mask", {"blockmask"}}}));
  options->target.addTo(*command);
  command->add_flag("--block-sparse", options->blockSparse, "The kernel walks the lists of a block mask (128 x 128)");
  options->kernel.addTo(*command);
  command
      ->add_option("-o,--output", options->output, "Where to: a file (appears whole or not at all); default stdout, -")
      ->type_name("FILE");
  command->footer("Example: attnc emit alibi.py --stage ptx --arch sm_90a --dtype bf16 --head-dim 128 -o alibi.ptx\n"
                  "Needs no GPU; ptx and cubin need libnvrtc.");
  command->callback([options, &exitCode] { exitCode = runEmit(*options); });
}

} // namespace attnc::cli
