// What `attnc check` found of claims and budgets.
#pragma once

#include "commands.h"
#include "show/json_report.h"

#include <string>

namespace attnc::cli {

struct Verdicts {
  std::string text;                       ///< for people
  JsonReport json = JsonReport::object(); ///< "claims" and "budgets"
  int code = kDone;                       ///< exit code

  /// Keeps the worst exit code: a wrong mod before what is not decided.
  void add(int other) {
    if (other == kModWrong || code == kDone) code = other;
  }
};

} // namespace attnc::cli
