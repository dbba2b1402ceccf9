// `attnc quantise`: rounds q, k and v of a file to e4m3, as a forward kernel takes them.
#include "commands/command.h"
#include "problem/safetensors.h"
#include "text.h"

#include "attnc/quantise.h"
#include "attnc/version.h"
#include "support/ceil_div.h"
#include "support/element.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>

namespace attnc::cli {
namespace {

struct QuantiseCommand {
  std::string input, output;
  bool byBlocks = false, byRows = false, rotary = false, interleaved = false, json = false;
  std::optional<uint32_t> seed; ///< of the rotation of q and k
};

struct Rounded {
  HostTensor values, scales;
  double error; ///< root mean square of what rounding changes, next to that of the tensor
};

/// Returns the sums of squares of the tensor, and of its difference from what was rounded without a rotation.
double errorOf(const HostTensor& x, const Rounded& rounded, int64_t rowsOfScale) {
  const int64_t rows = x.shape[2], columns = x.shape[3];
  const int64_t scales = rounded.scales.shape.size() > 2 ? rounded.scales.shape[2] : 1; // of a head
  double squares = 0, ofX = 0;
  for (int64_t i = 0; i < x.elements(); ++i) {
    const int64_t row = i / columns % rows, head = i / columns / rows;
    const double scale = readElement(rounded.scales.bytes.data(), DType::F32, head * scales + row / rowsOfScale).real;
    const double value = readElement(x.bytes.data(), x.dtype, i).real;
    const double difference = readElement(rounded.values.bytes.data(), DType::E4M3, i).real * scale - value;
    squares += difference * difference;
    ofX += value * value;
  }
  return ofX > 0 ? std::sqrt(squares / ofX) : 0;
}

/// Returns how a tensor is rounded. q and k are rotated and embedded, v is not.
Expected<QuantiseOptions> optionsFor(const std::string& name, const NamedTensors& tensors,
                                     const QuantiseCommand& command) {
  QuantiseOptions options;
  if (name == "v") return options;
  options.rotates = command.seed.has_value();
  options.seed = command.seed.value_or(0);
  if (!command.rotary) return options;
  const auto table = tensors.find("cos_sin"), positions = tensors.find(name + "_positions");
  if (table == tensors.end())
    return Error::environment(fmt::format("{}: --rotary, and there is no tensor 'cos_sin'", command.input),
                              "add [positions, columns]: cosines, then sines");
  options.cosSin = table->second.view();
  if (positions != tensors.end()) options.positions = positions->second.view();
  options.interleaved = command.interleaved;
  return options;
}

Expected<Rounded> roundTensor(const std::string& name, const HostTensor& x, const QuantiseCommand& command,
                              const QuantiseOptions& options) {
  if (x.shape.size() != 4)
    return Error::environment(fmt::format("{}: tensor '{}' has shape {}", command.input, name, shapeText(x.shape)),
                              "tensors that are rounded are [B, H, L, D]");
  std::vector<int64_t> shape = {x.shape[0], x.shape[1]};
  const int64_t rowsOfScale = command.byRows ? 1 : command.byBlocks ? kRowsOfScale : std::max<int64_t>(x.shape[2], 1);
  if (command.byBlocks || command.byRows) shape.push_back(ceilDiv(x.shape[2], rowsOfScale));
  Rounded rounded{HostTensor::make(DType::E4M3, x.shape), HostTensor::make(DType::F32, shape), 0};
  if (auto done = quantiseOnCpu(x.view(), rounded.values.view(), rounded.scales.view(), options); !done)
    return Error::environment(fmt::format("{}: tensor '{}': {}", command.input, name, done.error().message),
                              done.error().remedy);
  // Rotations keep lengths of rows, but a row is not near what it was before.
  if (!options.rotates && !options.cosSin) rounded.error = errorOf(x, rounded, rowsOfScale);
  return rounded;
}

Status runQuantise(const QuantiseCommand& command) {
  refuseOntoTerminal("-o", command.output);
  refuseOntoInput("-o", command.output, {command.input});
  ATTNC_TRY_AS(file, readSafetensors(command.input));
  NamedTensors tensors = std::move(file->tensors);
  std::string summary;
  JsonReport facts = JsonReport::object();
  for (const char* name : {"q", "k", "v"}) {
    const auto found = tensors.find(name);
    if (found == tensors.end())
      return Error::environment(
          fmt::format("{}: there is no tensor '{}': {}", command.input, name, namesText(file->names)),
          "give a file with q, k and v");
    HostTensor& x = found->second;
    ATTNC_TRY_AS(options, optionsFor(name, tensors, command));
    ATTNC_TRY_AS(rounded, roundTensor(name, x, command, *options));
    summary += fmt::format("{:<11} {} {}, scales {}", name, dtypeName(x.dtype), shapeText(x.shape),
                           shapeText(rounded->scales.shape));
    facts[name] = {{"dtype", dtypeName(x.dtype)}, {"shape", x.shape}, {"scales", rounded->scales.shape}};
    if (options->cosSin) {
      summary += ", rotary embedding";
      facts[name]["embedded"] = true;
    }
    if (options->rotates) {
      summary += ", rotated";
      facts[name]["rotated"] = true;
    }
    if (options->cosSin || options->rotates) {
      summary += "\n";
    } else {
      summary += fmt::format(", error {:.2g} %\n", 100 * rounded->error);
      facts[name]["error"] = rounded->error;
    }
    x = std::move(rounded->values);
    tensors[std::string(name) + "_scales"] = std::move(rounded->scales);
  }
  ATTNC_TRY(writeSafetensors(command.output, tensors, {{"producer", "attnc " ATTNC_VERSION}}));
  summary += "wrote       " + (command.output == "-" ? "<stdout>" : command.output) + "\n";
  const std::string text =
      command.json ? jsonText({{"ok", true}, {"tensors", facts}, {"output", command.output}}) : summary;
  return printBeside(command.output, text);
}

} // namespace

void addQuantise(CLI::App& app, int& exitCode) {
  auto [quantise, command] = addCommand<QuantiseCommand>(
      app, exitCode, "quantise", "Round q, k and v of a file to e4m3, with their scales", runQuantise);
  addFile(quantise, "--in", command.input, "safetensors file with q, k, v [B, H, L, D] of bf16, fp16 or fp32. -: stdin")
      ->required();
  CLI::Option* byBlock =
      quantise.add_flag("--by-block", command.byBlocks, "A scale for each 128 rows, not for each head");
  quantise.add_flag("--by-row", command.byRows, "A scale for each row")->excludes(byBlock);
  addOption(quantise, "--rotate", command.seed, "SEED",
            "Multiply q and k by random signs of this seed and a Hadamard matrix first: products stay the same, "
            "and\noutliers spread over a row");
  CLI::Option* rotary = quantise.add_flag(
      "--rotary", command.rotary,
      "Apply a rotary embedding to q and k first: tensor cos_sin [positions, columns] of the file has cosines, then\n"
      "sines, and q_positions, k_positions (i32, i64 [B, L]) its rows; default: the index of a row");
  quantise
      .add_flag("--interleaved", command.interleaved, "Its pairs are columns 2 i and 2 i + 1, as in GPT-J, not halves")
      ->needs(rotary);
  addFile(quantise, "-o,--output", command.output,
          "safetensors file for q, k, v, q_scales, k_scales, v_scales and all other tensors. -: stdout")
      ->required();
  quantise.add_flag("--json", command.json, "For programs: shapes, and errors of what was not rotated");
  quantise.footer(
      R"(A scale is the largest magnitude of its rows, divided by 448. Errors are root mean squares, next to that
of the tensor.
Programs round on the GPU: Quantiser of attnc/quantise.h.

Examples:
  attnc quantise --in qkv.safetensors -o fp8.safetensors
  attnc quantise --in qkv.safetensors --by-block --rotate 1 -o fp8.safetensors
  attnc run alibi.py --in fp8.safetensors --verify)");
}

} // namespace attnc::cli
