#include "problem/gradient_options.h"

#include "add_option.h"
#include "problem/options.h"

#include "attnc/explain.h"

#include <algorithm>
#include <string_view>

namespace attnc::cli {
namespace {

const std::vector<std::string> kAll = {"all"}, kNone = {"none"};

} // namespace

std::string sumOf(const CaptureInfo& gradient) {
  return gradient.name.substr(0, gradient.name.size() - std::string_view("_gradient").size());
}

void GradientOptions::addTo(CLI::App& command) {
  addRepeated(
      command, "--gradients", captures, "NAME",
      "Backward: captures that get gradients besides q, k and v, and sums of the mod whose gradients are given, by\n"
      "name, separated by commas; none; or all (default): the floats that a gradient arrives at, and all sums")
      ->delimiter(',');
  command.add_flag("--deterministic", deterministic, "Backward: equal runs give equal bits");
}

void GradientOptions::check(bool isBackward) const {
  if (isBackward) return;
  const auto refuse = [](const std::string& option) {
    throw wrongUsage(option, "is of the backward pass, which is not asked for",
                     "ask for it, with --backward (run) or --kernel backward (others), or leave " + option + " out");
  };
  if (captures != kAll) refuse("--gradients");
  if (deterministic) refuse("--deterministic");
}

bool GradientOptions::areNamed() const { return captures != kAll && captures != kNone; }

std::vector<CaptureInfo> GradientOptions::ofOutputs(const Mod& mod) const {
  std::vector<CaptureInfo> all = mod.reductionGradients();
  if (captures == kAll) return all;
  std::erase_if(all, [&](const CaptureInfo& one) {
    return std::find(captures.begin(), captures.end(), sumOf(one)) == captures.end();
  });
  return all;
}

Expected<std::set<std::string>> GradientOptions::wanted(const Mod& mod, bool ofOutputs) const {
  if (captures == kNone) return std::set<std::string>();
  if (captures == kAll) return reachedCaptures(mod, ofOutputs);
  std::set<std::string> names(captures.begin(), captures.end());
  for (const CaptureInfo& one : mod.reductionGradients()) names.erase(sumOf(one));
  for (const CaptureInfo& one : mod.reductions())
    if (names.count(one.name) && !one.isSum)
      throw wrongUsage("--gradients", one.name + " is a maximum, which has no gradient",
                       "name sums of the mod, or captures");
  if (auto checked = checkGradients(mod, names); !checked) {
    throwUsage("--gradients", checked.error());
    return std::move(checked).error();
  }
  return names;
}

} // namespace attnc::cli
