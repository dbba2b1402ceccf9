// `attnc infer`: the mod of a mask that is given as a tensor.
#include "command.h"
#include "output_file.h"
#include "problem/safetensors.h"
#include "text.h"

#include "attnc/infer.h"
#include "support/try.h"

#include <fmt/format.h>

#include <filesystem>
#include <string>

namespace attnc::cli {
namespace {

struct InferCommand {
  std::string input, tensor, output;
  bool json = false;
};

/// Reads the one tensor of a file, or the named one.
Expected<HostTensor> readMask(const InferCommand& command) {
  const auto wanted = [&](const std::string& name) {
    return command.tensor.empty() || name == command.tensor ? Want::Data : Want::Nothing;
  };
  ATTNC_TRY_AS(file, readSafetensors(command.input, wanted));
  const std::string name = !command.tensor.empty() ? command.tensor : file->names.size() == 1 ? file->names[0] : "mask";
  const auto found = file->tensors.find(name);
  if (found == file->tensors.end())
    return Error::environment(
        fmt::format("{}: there is no tensor '{}': {}", command.input, name, namesText(file->names)),
        "name one with --tensor");
  return std::move(found->second);
}

std::string textOf(const Inference& inference) {
  constexpr const char* kForms[] = {"a formula", "intervals", "a table"};
  const ProblemShape& p = inference.problem;
  std::string text;
  const auto add = [&](const char* label, const std::string& line) { text += fmt::format("{:<12}{}\n", label, line); };
  add("mask", fmt::format("B {}, H {}, Q_LEN {}, KV_LEN {}; {:.3g} % live", p.batch, p.qHeads, p.qLen, p.kvLen,
                          100 * inference.live));
  add("recognised", fmt::format("{}", fmt::join(inference.recognised, "; ")));
  add("form", fmt::format("{}, equal on every element", kForms[int(inference.form)]));
  for (const InferredCapture& capture : inference.captures)
    add("capture", fmt::format("{}: {} {}", capture.name, dtypeName(capture.dtype), shapeText(capture.shape)));
  if (const auto& noise = inference.noise) {
    add("noise", fmt::format("{} elements differ from {}", noise->elements, noise->expression));
    for (const auto& [b, h, q, kv] : noise->places)
      add("", fmt::format("b {}, h {}, q_idx {}, kv_idx {}", b, h, q, kv));
  }
  add("other sizes", inference.otherLengths);
  add("blocks", fmt::format("{} full, {} partial, {} empty, of 128 x 128", inference.fullBlocks,
                            inference.partialBlocks, inference.emptyBlocks));
  return text;
}

/// Returns the path of a mod's captures: mod.safetensors for mod.py.
std::string capturesPath(const std::string& path) {
  return std::filesystem::path(path).replace_extension(".safetensors").string();
}

Status inferMod(const InferCommand& command) {
  refuseOntoInput("-o", command.output, {command.input});
  if (!command.output.empty()) refuseOntoInput("-o", capturesPath(command.output), {command.input});
  ATTNC_TRY_AS(mask, readMask(command));
  const std::string source = command.input == "-" ? "stdin" : std::filesystem::path(command.input).filename().string();
  auto inference = infer(mask->view(), source);
  if (!inference)
    return Error::environment(fmt::format("{}: {}", command.input, inference.error().message),
                              inference.error().remedy);
  std::string told = textOf(*inference);
  if (!command.output.empty()) {
    ATTNC_TRY(writeWholeFile(command.output, {inference->text}));
    told += fmt::format("{:<12}{}\n", "wrote", command.output);
    if (!inference->captures.empty()) {
      NamedTensors tensors;
      for (const InferredCapture& capture : inference->captures)
        tensors[capture.name] = HostTensor{capture.dtype, capture.shape, capture.bytes};
      ATTNC_TRY(writeSafetensors(capturesPath(command.output), tensors));
      told += fmt::format("{:<12}{}\n", "", capturesPath(command.output));
    }
  }
  return printResult(command.json ? toJson(*inference) : command.output.empty() ? inference->text + "\n" + told : told);
}

} // namespace

void addInfer(CLI::App& app, int& exitCode) {
  auto [command, options] =
      addCommand<InferCommand>(app, exitCode, "infer", "Write the mod of a mask that is a tensor", inferMod);
  addFile(command, "mask", options.input,
          "safetensors file with a mask [Q, KV], [B, Q, KV] or [B, H, Q, KV]: bool, ints of 0 and 1, or\n"
          "floats of 0 (live) and -inf (masked). -: stdin")
      ->required();
  addOption(command, "--tensor", options.tensor, "NAME",
            "Name of the mask. Default: the file's one tensor, else 'mask'");
  addFile(command, "-o,--output", options.output,
          "Where to: FILE.py for the mod, and FILE.safetensors for its captures. Default: stdout, without captures");
  command.add_flag("--json", options.json, "For programs: text, captures with values, what was recognised");
  command.footer("The mod is equal to the mask on every element: each was compared.\n\n"
                 "Examples:\n"
                 "  attnc infer mask.safetensors\n"
                 "  attnc infer mask.safetensors -o window.py\n"
                 "  attnc mask window.py --in window.safetensors");
}

} // namespace attnc::cli
