#include "problem/mask_problem.h"

#include "add_option.h"
#include "problem/collect_captures.h"
#include "problem/grid_text.h"
#include "support/try.h"
#include "terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <variant>

namespace attnc::cli {
namespace {

constexpr ProblemShape kDefaultShape{1, 16, 16, 4096, 4096};

constexpr ProblemShape kOneHead{1, 1, 1, 0, 0}; // where --shape gives only lengths

/// Returns the captures that nothing gives, and whose values are needed.
std::string drawnNames(const Mod& mod, const ProblemOptions& options, Elements elements) {
  if (!options.input.empty()) return {};
  const Needed needed(mod, elements);
  std::string names;
  for (const CaptureInfo& capture : mod.captures()) {
    if (needed(capture.name) && !isSet(options, capture.name)) names += (names.empty() ? "" : ", ") + capture.name;
  }
  return names;
}

} // namespace

void addMaskProblem(CLI::App& command, ProblemOptions& options) {
  options.mod.addTo(command);
  addParsed(
      command, "--shape",
      [&options](const std::string& text) { options.shape = parseShape("--shape", text, kOneHead).shape; }, kShapeName,
      "The problem; or only its lengths, of one head: Q_LEN,KV_LEN, or one number for both. Default: that of the "
      "file's q and k, or of its captures, or of the grid that the mod declares; else 1,16,16,4096,4096");
  addFile(command, "--in", options.input,
          "safetensors file with the captured tensors, and q and k; -: stdin. A tensor that the mod needs and does "
          "not\ndeclare is taken as it is");
  addSets(command, options.sets);
  command.add_option("--seed", options.seed, "Of captures that are drawn")->capture_default_str()->check(checkSeed);
}

Expected<HostOperands> findMaskProblem(const Mod& mod, const ProblemOptions& options, Elements elements,
                                       bool withScores) {
  ATTNC_TRY_AS(fallback, onDeclaredGrids(mod, options, kDefaultShape));
  ATTNC_TRY_AS(
      operands,
      findCaptures(mod, options,
                   {.shape = options.shape, .fallback = *fallback, .elements = elements, .withScores = withScores}));
  if (const std::string drawn = drawnNames(mod, options, elements); !drawn.empty())
    printMessage("attnc: note: drawn at random: " + drawn + "; --set or --in gives values\n");
  return operands;
}

bool isSet(const ProblemOptions& options, const std::string& capture) {
  const auto gives = [&](const std::string& set) { return set.starts_with(capture + "="); };
  return std::any_of(options.sets.begin(), options.sets.end(), gives);
}

std::string valuesText(const Captures& captures) {
  std::string text;
  for (const auto& [name, value] : captures.all()) {
    if (std::holds_alternative<TensorView>(value)) continue;
    text += fmt::format("{}{} = ", text.empty() ? "" : ", ", name);
    if (auto integer = std::get_if<int64_t>(&value)) text += fmt::to_string(*integer);
    if (auto real = std::get_if<double>(&value)) text += fmt::format("{:g}", *real);
    if (auto flag = std::get_if<bool>(&value)) text += *flag ? "True" : "False";
  }
  return text;
}

std::string titleOf(const Mod& mod, const Captures& captures) {
  const std::string values = valuesText(captures);
  return std::filesystem::path(mod.name()).filename().string() + (values.empty() ? "" : ": " + values);
}

} // namespace attnc::cli
