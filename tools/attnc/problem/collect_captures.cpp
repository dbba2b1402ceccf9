#include "problem/collect_captures.h"

#include "problem/capture_text.h"
#include "text.h"

#include "support/element.h"
#include "support/try.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace attnc::cli {
namespace {

[[noreturn]] void badSet(const std::string& assignment, const std::string& reason, const std::string& hint = {}) {
  throw wrongUsage("--set", inQuotes(assignment) + ": " + reason, hint);
}

/// Collects the captures of one run.
class Collector {
public:
  Collector(const Mod& mod, const ProblemOptions& options, NamedTensors& file, Generator* generator,
            const Needed& needed, Drawn drawn)
      : mod(mod), options(options), file(file), generator(generator), needed(needed), drawn(drawn) {}

  Status collect(HostOperands& operands) {
    readSets();
    std::vector<const CaptureInfo*> missing;
    for (const CaptureInfo& capture : mod.captures()) {
      ATTNC_TRY_AS(isGiven, collectGiven(capture, operands));
      if (!*isGiven) missing.push_back(&capture);
    }
    if (generator) generator->chooseDims(mod, freeDims);
    for (const CaptureInfo* capture : missing) ATTNC_TRY(draw(*capture, operands));
    for (const auto& [name, tensor] : operands.tensors) operands.captures.set(name, tensor.view());
    return {};
  }

private:
  /// Splits --set into values of captures and extents of free dims.
  void readSets() {
    std::set<std::string> captures, dims;
    for (const CaptureInfo& capture : mod.captures()) {
      captures.insert(capture.name);
      if (generator) dims.insert(capture.extent.begin(), capture.extent.end());
    }
    for (const char* builtin : {"B", "H", "HKV", "Q_LEN", "KV_LEN"}) dims.erase(builtin);
    for (const auto& [name, value] : assignments("--set", options.sets)) {
      if (captures.count(name)) {
        sets[name] = value;
        continue;
      }
      const std::string assignment = name + "=" + value;
      if (!dims.count(name)) badSet(assignment, unknownName(), instead(name, value));
      int64_t extent = 0;
      if (!parseInteger(value, extent) || extent < 0)
        badSet(assignment, "an extent is a number from 0", fmt::format("--set {}=64", name));
      freeDims[name] = extent;
    }
  }

  std::string unknownName() const {
    std::string names;
    for (const CaptureInfo& capture : mod.captures()) names += (names.empty() ? "" : ", ") + declaration(capture);
    return names.empty() ? "the mod captures nothing" : "the mod captures no such name, it captures " + names;
  }

  /// Suggests what to write for a --set of a name that is not a capture.
  std::string instead(const std::string& name, const std::string& value) const {
    const std::vector<std::string>& constants = mod.constants();
    if (std::find(constants.begin(), constants.end(), name) != constants.end())
      return fmt::format("{0} is a constant of the text, which is compiled in: -D {0}={1}", name, value);
    std::vector<std::string> known = constants;
    for (const CaptureInfo& capture : mod.captures()) known.push_back(capture.name);
    return didYouMean(name, known,
                      "--set gives what the text declares, `window: int`; -D overrides a constant, `WINDOW = 64`");
  }

  static std::string exampleOf(const CaptureInfo& capture) {
    const char* value = capture.kind == CaptureInfo::Kind::Int     ? "64"
                        : capture.kind == CaptureInfo::Kind::Float ? "0.5"
                                                                   : "true";
    return fmt::format("--set {}={}", capture.name, value);
  }

  /// Takes a capture from --set. Returns whether it was given.
  Expected<bool> collectGiven(const CaptureInfo& capture, HostOperands& operands) {
    if (auto assignment = sets.find(capture.name); assignment != sets.end()) {
      set(capture, assignment->second, operands);
      return true;
    }
    if (auto found = file.find(capture.name); found != file.end()) {
      ATTNC_TRY(takeFromFile(capture, found->second, operands));
      return true;
    }
    if (auto pin = pins.find(capture.name); pin != pins.end() && capture.kind != CaptureInfo::Kind::Tensor) {
      setPinned(capture, pin->second, operands);
      return true;
    }
    return false;
  }

  /// Returns which tensor of the file may be meant, or what the file has.
  std::string missingRepair(const CaptureInfo& capture) const {
    const std::string set =
        capture.extent.empty() ? fmt::format("--set {}=VALUE gives it", capture.name) : std::string();
    if (options.input == "-") return set.empty() ? "save it in the file under this name" : set;
    const auto read = readSafetensors(options.input, [](const std::string&) { return Want::Nothing; });
    if (!read) return set;
    std::vector<std::string> others;
    for (const std::string& name : read->names)
      if (name != "q" && name != "k" && name != "v") others.push_back(name);
    const std::string near = nearest(capture.name, others);
    if (!near.empty())
      return fmt::format("the file has {0}: save it as {1}, or declare {0} in the mod", inQuotes(near),
                         inQuotes(capture.name));
    return (set.empty() ? "save it in the file under this name" : set) + "; " + namesText(read->names);
  }

  Error missingError(const CaptureInfo& capture) const {
    const std::string start = fmt::format("capture {} is missing: ", inQuotes(declaration(capture)));
    if (!options.input.empty())
      return Error::environment(
          start + fmt::format("{} has no such tensor, and {}", inQuotes(options.input),
                              generator ? "--set does not give it" : "neither --set nor --pin gives it"),
          missingRepair(capture));
    if (capture.kind == CaptureInfo::Kind::Tensor && !capture.extent.empty())
      return Error::environment(start + "no file is given that has it",
                                "--in FILE.safetensors gives tensors by their names");
    return Error::environment(start + "it has no value", fmt::format("--set {}=VALUE gives it one", capture.name));
  }

  Status draw(const CaptureInfo& capture, HostOperands& operands) {
    if (!generator || (drawn == Drawn::Unneeded && needed(capture.name))) return missingError(capture);
    if (capture.kind != CaptureInfo::Kind::Tensor) {
      std::visit([&](auto value) { operands.captures.set(capture.name, value); }, generator->scalar(capture));
      return {};
    }
    HostTensor tensor{capture.dtype, generator->shapeOf(capture, freeDims), {}};
    if (needed(capture.name)) ATTNC_TRY(generator->fill(capture, tensor));
    operands.tensors[capture.name] = std::move(tensor);
    return {};
  }

  void set(const CaptureInfo& capture, const std::string& text, HostOperands& operands) {
    const std::string assignment = capture.name + "=" + text;
    if (capture.kind != CaptureInfo::Kind::Tensor) {
      std::string expected;
      auto value = parseScalar(capture, text, expected);
      if (!value)
        badSet(assignment, "the value must be " + expected,
               "the mod declares `" + declaration(capture) + "`: " + exampleOf(capture));
      std::visit([&](auto known) { operands.captures.set(capture.name, known); }, *value);
      return;
    }
    if (!capture.extent.empty())
      badSet(assignment, "'" + declaration(capture) + "' is a tensor, which comes from the file",
             "give it in the file of --in; --set NAME=N gives the extent of a free dim");
    auto tensor = parseElement(capture.dtype, text);
    if (!tensor)
      badSet(assignment, fmt::format("the value does not fit {}", dtypeName(capture.dtype)),
             "the mod declares `" + declaration(capture) + "`");
    operands.tensors[capture.name] = std::move(*tensor);
  }

  static Status convert(const CaptureInfo& capture, HostTensor& tensor) {
    const bool hasElements = !tensor.bytes.empty();
    HostTensor converted{capture.dtype, tensor.shape, {}};
    if (hasElements) converted = HostTensor::make(capture.dtype, tensor.shape);
    for (int64_t i = 0; hasElements && i < tensor.elements(); ++i) {
      const int64_t value = readElement(tensor.bytes.data(), tensor.dtype, i).integer;
      // The low bytes of a little-endian integer are the narrower integer, if it fits.
      std::memcpy(converted.bytes.data() + i * dtypeBytes(capture.dtype), &value, size_t(dtypeBytes(capture.dtype)));
      if (readElement(converted.bytes.data(), capture.dtype, i).integer != value)
        return Error::environment(fmt::format("capture {}: the file's {} has {} as element {}, which does not fit",
                                              inQuotes(declaration(capture)), dtypeName(tensor.dtype), value, i));
    }
    tensor = std::move(converted);
    return {};
  }

  /// Takes a pinned scalar's value from --pin, so that it needs no --set.
  void setPinned(const CaptureInfo& capture, int64_t value, HostOperands& operands) const {
    if (capture.kind == CaptureInfo::Kind::Bool)
      operands.captures.set(capture.name, value != 0);
    else
      operands.captures.set(capture.name, value);
  }

  /// Takes a capture from the file. Scalars may be tensors of one element, and integers may have another width.
  Status takeFromFile(const CaptureInfo& capture, HostTensor& tensor, HostOperands& operands) {
    if (capture.kind == CaptureInfo::Kind::Tensor) {
      if (capture.dtype != tensor.dtype && isInteger(capture.dtype) && isInteger(tensor.dtype))
        ATTNC_TRY(convert(capture, tensor));
      for (size_t axis = 0; axis < std::min(capture.extent.size(), tensor.shape.size()); ++axis)
        freeDims.try_emplace(capture.extent[axis], tensor.shape[axis]);
      operands.tensors[capture.name] = std::move(tensor);
      return {};
    }
    const bool isFloatDeclared = capture.kind == CaptureInfo::Kind::Float;
    const auto misfit = [&](const std::string& given) {
      const char* const declared = isFloatDeclared                          ? "a float"
                                   : capture.kind == CaptureInfo::Kind::Int ? "an int"
                                                                            : "a bool";
      return Error::environment(
          fmt::format("capture '{}' is declared as {}, but {} is given", capture.name, declared, given),
          fmt::format("the file has {} of shape {}", dtypeName(tensor.dtype), shapeText(tensor.shape)));
    };
    if (tensor.elements() != 1) return misfit("a tensor of shape " + shapeText(tensor.shape));
    if (isFloatDeclared && isInteger(tensor.dtype)) return misfit("an int");
    const Number element = readElement(tensor.bytes.data(), tensor.dtype, 0);
    if (isFloat(tensor.dtype))
      operands.captures.set(capture.name, double(element.real)); // checkCaptures() refuses other kinds
    else if (tensor.dtype == DType::Bool)
      operands.captures.set(capture.name, element.integer != 0);
    else
      operands.captures.set(capture.name, element.integer);
    return {};
  }

  const Mod& mod;
  const ProblemOptions& options;
  NamedTensors& file;
  Generator* generator;
  const Needed& needed;
  const Drawn drawn;
  const std::map<std::string, int64_t> pins = options.kernel.toOptions().pins;
  std::map<std::string, std::string> sets;
  std::map<std::string, int64_t> freeDims;
};

} // namespace

Status collectCaptures(const Mod& mod, const ProblemOptions& options, NamedTensors& file, Generator* generator,
                       const Needed& needed, Drawn drawn, HostOperands& operands) {
  return Collector(mod, options, file, generator, needed, drawn).collect(operands);
}

} // namespace attnc::cli
