#include "problem/save_operands.h"

#include "problem/ragged.h"
#include "text.h"

#include "attnc/version.h"
#include "support/element.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <variant>

namespace attnc::cli {
namespace {

/// Returns a captured number as a tensor of one element.
HostTensor numberTensor(CaptureInfo::Kind kind, const Captures::Item& item) {
  const DType dtype = kind == CaptureInfo::Kind::Int     ? DType::I32
                      : kind == CaptureInfo::Kind::Float ? DType::F32
                                                         : DType::Bool;
  HostTensor tensor = HostTensor::make(dtype, {1});
  std::visit(
      [&](auto value) {
        if constexpr (std::is_arithmetic_v<decltype(value)>) writeElement(tensor.bytes.data(), dtype, 0, double(value));
      },
      item);
  return tensor;
}

} // namespace

void checkSaveOperands(const ProblemOptions& options) {
  if (options.savedOperands.empty()) return;
  constexpr const char* kOption = "--save-operands";
  if (!options.random)
    throw wrongUsage(kOption, "writes operands that are drawn, and those of --in are in a file already",
                     "leave it out, or draw: --random 1,4,4,512,512,64 --save-operands FILE");
  if (options.savedOperands == "-")
    throw wrongUsage(kOption, "writes a file, not stdout", "e.g. --save-operands operands.safetensors");
  if (options.savedOperands == options.output)
    throw wrongUsage(kOption, inQuotes(options.output) + " is also the file for the result", "give two files");
  refuseOntoInput(kOption, options.savedOperands, {options.mod.path});
}

Status saveOperands(const Mod& mod, const HostOperands& operands, const ProblemOptions& options) {
  const bool isRagged = operands.cuSeqlensQ.has_value();
  NamedTensors tensors;
  std::string twice;
  const auto add = [&](const std::string& name, HostTensor tensor) {
    if (!tensors.emplace(name, std::move(tensor)).second) twice = name;
  };
  const auto addRows = [&](const char* name, const HostTensor& rows) { add(name, isRagged ? toPacked(rows) : rows); };
  addRows("q", operands.q);
  if (operands.cache) {
    add("k", operands.cache->k);
    add("v", operands.cache->v);
  } else {
    addRows("k", operands.k);
    addRows("v", operands.v);
  }
  if (options.backward) addRows("dout", operands.dOut);
  if (options.backward && operands.dLse) addRows("dlse", *operands.dLse);
#define ATTNC_OPTIONAL(member, name, feature)                                                                          \
  if (operands.member) add(#name, *operands.member);
#include "attnc/operands.def"
  if (operands.cache && operands.cache->kScales) tensors["k_scales"] = *operands.cache->kScales;
  if (operands.cache && operands.cache->vScales) tensors["v_scales"] = *operands.cache->vScales;
  for (const auto& [name, tensor] : operands.tensors) add(name, tensor);
  for (const CaptureInfo& capture : mod.captures())
    if (capture.kind != CaptureInfo::Kind::Tensor)
      if (const Captures::Item* item = operands.captures.find(capture.name))
        add(capture.name, numberTensor(capture.kind, *item));
  if (!twice.empty())
    return Error::environment(
        fmt::format("the mod captures {}, and a file has the operand of this name", inQuotes(twice)),
        "rename the capture in the mod");
  return writeSafetensors(options.savedOperands, tensors, {{"producer", "attnc " ATTNC_VERSION}});
}

std::string savedText(const ProblemOptions& options) {
  std::string again = "--in " + options.savedOperands;
  if (options.backward) again += " --backward";
  if (!options.target.fp8.outDType.empty()) again += " --out-dtype " + options.target.fp8.outDType;
  if (options.scale) again += fmt::format(" --scale {}", *options.scale);
  if (!options.sequences.qOffset.empty()) again += " --q-offset " + options.sequences.qOffset;
  return fmt::format("saved       {}; the same run: {}\n", options.savedOperands, again);
}

} // namespace attnc::cli
