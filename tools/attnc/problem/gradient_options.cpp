#include "problem/gradient_options.h"

#include "add_option.h"
#include "problem/options.h"

#include "attnc/explain.h"

namespace attnc::cli {
namespace {

const std::vector<std::string> kAll = {"all"}, kNone = {"none"};

} // namespace

void GradientOptions::addTo(CLI::App& command) {
  addRepeated(command, "--gradients", captures, "NAME",
              "Backward: captures that get gradients besides q, k and v, by name, separated by commas; none; or all\n"
              "(default): the floats that a gradient arrives at")
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

Expected<std::set<std::string>> GradientOptions::wanted(const Mod& mod) const {
  if (captures == kNone) return std::set<std::string>();
  if (captures == kAll) return reachedCaptures(mod);
  const std::set<std::string> names(captures.begin(), captures.end());
  if (auto checked = checkGradients(mod, names); !checked) {
    throwUsage("--gradients", checked.error());
    return std::move(checked).error();
  }
  return names;
}

} // namespace attnc::cli
