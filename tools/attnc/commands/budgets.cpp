#include "commands/budgets.h"

#include "commands/command.h"
#include "problem/operands.h"
#include "show/explanation.h"
#include "text.h"

#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>

namespace attnc::cli {
namespace {

constexpr const char* kForms = R"("h100: 1.2 ms for 2,16,2,8192,8192,128", "h200 backward rested: 3 ms", )"
                               R"("0 spilled bytes", "no block mask" or "8 operations a score")";

struct Budget {
  enum class Of { Milliseconds, SpilledBytes, BlockMask, Operations } of = Of::Milliseconds;
  std::string text;
  double most = 0;
  std::string gpu, clock;         ///< of milliseconds; empty clock: the slowest that is known
  std::string kind;               ///< of the kernel; empty: that of --kernel
  std::optional<ShapeText> given; ///< unset: that of --shape
};

/// What came of a budget.
struct Kept {
  const char* answer; ///< "kept", "exceeded" or "undecided"
  std::string found;
  JsonReport value = {}; ///< the number; null: none
};

CLI::ValidationError refused(const std::string& text, const std::string& why, const std::string& hint = {}) {
  return wrongUsage("--budget", inQuotes(text) + " " + why, hint.empty() ? fmt::format("give {}", kForms) : hint);
}

double numberOf(const std::string& text, const std::string& number) {
  double value = 0;
  if (!parseNumber(number, value) || !std::isfinite(value) || value < 0)
    throw refused(text, fmt::format("has {} for a number", inQuotes(number)));
  return value;
}

/// Parses "h100 backward rested: 1.2 ms for 2,16,2,8192,8192,128".
Budget timeBudget(const std::string& text, const std::string& gpuWords, const std::string& number,
                  const std::string& shape) {
  Budget budget{.text = text, .most = numberOf(text, number)};
  std::string clock;
  for (const std::string& word : CLI::detail::split(CLI::detail::to_lower(gpuWords), ' ')) {
    if (word.empty()) continue;
    if (budget.gpu.empty())
      budget.gpu = word;
    else if (word == "forward" || word == "backward")
      budget.kind = word;
    else
      clock += (clock.empty() ? "" : " ") + word;
  }
  const std::vector<std::string> gpus = measuredGpus();
  const auto known = std::find_if(gpus.begin(), gpus.end(),
                                  [&](const std::string& gpu) { return CLI::detail::to_lower(gpu) == budget.gpu; });
  if (known == gpus.end())
    throw refused(text, fmt::format("is of a GPU whose times were not measured: {}", inQuotes(budget.gpu)),
                  fmt::format("times are predicted for {}", fmt::join(gpus, ", ")));
  budget.gpu = *known;
  if (!clock.empty() && clock != "rested" && clock != "under load")
    throw refused(text, fmt::format("has {}", inQuotes(clock)),
                  "behind the GPU may stand forward, backward, and a clock: rested, under load");
  budget.clock = clock;
  if (!shape.empty()) budget.given = parseShape("--budget", shape, kUsualShape);
  return budget;
}

Budget parseBudget(const std::string& text) {
  static const std::regex time(R"(\s*([^:]*):\s*(\S+)\s*ms(?:\s+for\s+(\S+))?\s*)", std::regex::icase);
  static const std::regex bytes(R"(\s*(\S+)\s+spilled\s+bytes?\s*)"), mask(R"(\s*no\s+block\s+mask\s*)"),
      operations(R"(\s*(\S+)\s+operations?\s+(?:a|per)\s+score\s*)");
  std::smatch found;
  if (std::regex_match(text, found, time)) return timeBudget(text, found[1], found[2], found[3]);
  if (std::regex_match(text, found, bytes))
    return {.of = Budget::Of::SpilledBytes, .text = text, .most = numberOf(text, found[1])};
  if (std::regex_match(text, mask)) return {.of = Budget::Of::BlockMask, .text = text};
  if (std::regex_match(text, found, operations))
    return {.of = Budget::Of::Operations, .text = text, .most = numberOf(text, found[1])};
  throw refused(text, "is no budget");
}

/// Returns the text of a number that was found, and whether it is within the budget.
Kept compared(const Budget& budget, double found, const std::string& text) {
  return {found <= budget.most ? "kept" : "exceeded", text, found};
}

Kept judged(const Budget& budget, const Explanation& all) {
  switch (budget.of) {
  case Budget::Of::Milliseconds: {
    const PassTime* slowest = nullptr;
    for (const PassTime& time : all.times)
      if (time.gpu == budget.gpu && (budget.clock.empty() || time.clock == budget.clock))
        if (!slowest || time.ms > slowest->ms) slowest = &time;
    if (slowest) return compared(budget, slowest->ms, timeText(*slowest));
    const std::string why = all.times.empty() ? all.whyNoTimes : budget.gpu + " " + budget.clock;
    return {"undecided", "not measured: " + why};
  }
  case Budget::Of::SpilledBytes: {
    int bytes = 0;
    for (const auto& kernel : all.compiled) bytes += kernel->spillBytes;
    return compared(budget, bytes, fmt::format("{} bytes", bytes));
  }
  case Budget::Of::BlockMask: {
    const KvLoop loop = all.kernel().kvLoop();
    const bool has = loop == KvLoop::BlockMask || loop == KvLoop::BoxMask;
    return {has ? "exceeded" : "kept", has ? "the kernel reads lists of blocks" : "none is read"};
  }
  case Budget::Of::Operations: {
    const uint64_t gradient = all.perScore.gradient ? all.perScore.gradient->element : 0;
    const uint64_t full = all.perScore.full.element + gradient, partial = all.perScore.partial.element + gradient;
    return compared(budget, double(std::max(full, partial)),
                    fmt::format("{} in full blocks, {} in partial ones", full, partial));
  }
  }
  return {};
}

} // namespace

void BudgetOptions::addTo(CLI::App& command, ExplainOptions& problem) {
  addRepeated(command, "--budget", texts, "TEXT",
              "What the kernel may cost; may be repeated:\n\"h100: 1.2 ms for 2,16,2,8192,8192,128\", \"0 spilled "
              "bytes\",\n\"no block mask\", \"8 operations a score\"");
  const size_t known = command.get_options().size();
  problem.owner = &command;
  addKernel(command, problem);
  addSets(command, problem.sets);
  const std::vector<CLI::Option*> options = command.get_options({});
  for (size_t i = known; i < options.size(); ++i) options[i]->needs("--budget");
}

Status BudgetOptions::run(const Mod& mod, const ExplainOptions& problem, Verdicts& verdicts) const {
  std::vector<Budget> budgets;
  for (const std::string& text : texts) budgets.push_back(parseBudget(text));
  std::map<std::pair<std::string, std::string>, Explanation> explained; // by kind and shape
  verdicts.json["budgets"] = JsonReport::array();
  for (const Budget& budget : budgets) {
    ExplainOptions options = problem;
    options.target.headDim = headDimOf(options.given, *options.owner, options.target.headDim);
    if (budget.given) {
      options.shape = budget.given->shape;
      options.target.headDim = budget.given->headDim.value_or(options.target.headDim);
    }
    if (budget.of == Budget::Of::Milliseconds && !options.shape)
      throw refused(budget.text, "has no shape",
                    "add \"for B,H,HKV,Q_LEN,KV_LEN,HEAD_DIM\", or give --shape for all budgets");
    if (budget.of == Budget::Of::Milliseconds) options.target.arch = "sm_90a"; // of H100 and H200
    if (!budget.kind.empty()) options.kernelKind.kind = budget.kind;
    options.target.check();
    if (options.isBackward()) options.gradients.captures = {"none"};
    const std::string shape = options.shape ? shapeText(*options.shape) : "";
    const auto key =
        std::pair(options.kernelKind.kind + options.target.arch, fmt::format("{},{}", shape, options.target.headDim));
    auto at = explained.find(key);
    if (at == explained.end()) {
      ATTNC_TRY_AS(arch, options.target.archAsked());
      ATTNC_TRY_AS(all, explanationOf(mod, options, arch->empty() ? Target{"sm_90a", {}} : Target{*arch, {}}));
      at = explained.emplace(key, *std::move(all)).first;
    }
    const Kept kept = judged(budget, at->second);
    const std::string answer = kept.answer;
    verdicts.text += fmt::format("{:12}{}: {}\n", answer, budget.text, kept.found);
    verdicts.json["budgets"].push_back({{"budget", budget.text}, {"answer", answer}, {"found", kept.found}});
    if (!kept.value.is_null()) verdicts.json["budgets"].back()["value"] = kept.value;
    verdicts.add(answer == "kept" ? kDone : answer == "exceeded" ? kModWrong : kEnvironmentWrong);
  }
  return {};
}

} // namespace attnc::cli
