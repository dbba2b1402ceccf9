#include "show/cost_changes.h"

#include "show/explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace attnc::cli {
namespace {

using Costs = std::vector<std::pair<std::string, JsonReport>>; // by name; null: not known

Costs costsOf(const Explanation& all) {
  const Plan& kernel = all.kernel();
  const KvLoop loop = kernel.kvLoop();
  const auto walks = [](const KernelSource& source) { return source.tileRows && source.tileColumns; };
  const auto walking = std::find_if(all.sources.begin(), all.sources.end(), walks);
  const ProblemShape& problem = all.preparation.problem;
  const auto& mask = all.census.shape; // of some heads, which stand for all
  const double heads = double(problem.batch * problem.qHeads) / double(std::max<int64_t>(1, mask.batch * mask.heads));
  int spills = 0, advisories = 0;
  for (const auto& launch : all.compiled) spills += launch->spillBytes, advisories += int(launch->advisories.size());
  Costs costs{{"family", familyName(kernel.options().family)},
              {"template", walking == all.sources.end() ? "" : walking->templateName},
              {"tile", kernel.tile()},
              {"launches", all.sources.size()},
              {"block mask", loop == KvLoop::BlockMask || loop == KvLoop::BoxMask ? "read" : "none"},
              {"live blocks", heads * all.census.live},
              {"partial blocks", heads * (all.census.live - all.census.full)},
              {"full blocks", heads * all.census.full},
              {"operations a score, full blocks", all.perScore.full.element},
              {"operations a score, partial blocks", all.perScore.partial.element}};
  costs.emplace_back("operations a score, gradient",
                     all.perScore.gradient ? JsonReport(all.perScore.gradient->element) : JsonReport());
  costs.emplace_back("spilled bytes", spills);
  costs.emplace_back("advisories", advisories);
  for (const std::string& gpu : measuredGpus())
    for (const char* clock : {"rested", "under load"}) {
      JsonReport ms;
      for (const PassTime& time : all.times)
        if (time.gpu == gpu && time.clock == clock) ms = time.ms;
      costs.emplace_back(fmt::format("ms, {} {}", gpu, clock), ms);
    }
  return costs;
}

std::string textOf(const JsonReport& cost) {
  if (cost.is_null()) return "not measured";
  if (cost.is_string()) return cost.get<std::string>();
  return fmt::format("{:.6g}", cost.get<double>());
}

/// Returns a cost as people read it: milliseconds with three digits.
std::string textOf(const std::string& name, const JsonReport& cost) {
  return cost.is_number() && name.starts_with("ms") ? millisecondsText(cost.get<double>()) : textOf(cost);
}

} // namespace

JsonReport changesJson(const Explanation& older, const Explanation& newer) {
  JsonReport json{{"old", older.mod.name()}, {"new", newer.mod.name()}, {"costs", JsonReport::array()}};
  const Costs before = costsOf(older), after = costsOf(newer);
  for (size_t i = 0; i < before.size(); ++i)
    json["costs"].push_back({{"cost", before[i].first},
                             {"old", before[i].second},
                             {"new", after[i].second},
                             {"isChanged", before[i].second != after[i].second}});
  if (older.times.empty()) json["whyNoTimesOld"] = older.whyNoTimes;
  if (newer.times.empty()) json["whyNoTimesNew"] = newer.whyNoTimes;
  return json;
}

std::string changesText(const Explanation& older, const Explanation& newer) {
  std::string text = fmt::format("{} -> {}\n", older.mod.name(), newer.mod.name());
  const Costs before = costsOf(older), after = costsOf(newer);
  for (size_t i = 0; i < before.size(); ++i) {
    const auto& [name, was] = before[i];
    const JsonReport& is = after[i].second;
    if (was.is_null() && is.is_null()) continue;
    std::string change = textOf(name, was);
    if (was != is) change += " -> " + textOf(name, is);
    if (was != is && was.is_number() && is.is_number() && was.get<double>() > 0)
      change += fmt::format(" ({:+.0f} %)", 100 * (is.get<double>() / was.get<double>() - 1));
    text += fmt::format("{} {:36}{}\n", was == is ? " " : "*", name, change);
  }
  for (const Explanation* one : {&older, &newer})
    if (one->times.empty()) text += fmt::format("  {}: no times, not measured: {}\n", one->mod.name(), one->whyNoTimes);
  return text;
}

} // namespace attnc::cli
