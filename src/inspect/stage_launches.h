// How the stages of a plan are launched, as text: for the comment of an emitted file, and for its launcher.
#pragma once

#include "plan/plan.h"

#include <string>
#include <string_view>

namespace attnc {

/// How a template is launched. Texts are C++ behind templates/host, with `stage`, `operands`, `device` and `view`.
struct StageLaunch {
  std::string_view templateName;
  std::string_view ctas;      ///< a function; "{}" stands for a number of CTAs per multiprocessor
  std::string_view ctasWords; ///< the number of CTAs, for people; {m} and {n}: rows and columns of the tile
  std::string_view params;    ///< an expression: the parameters without maps
  std::string_view maps = ""; ///< the tensors that have maps: rows of their boxes are {m} for q, {n} for k
};

/// Returns the row of a stage. Null for templates that launchers do not serve.
const StageLaunch* launchOf(const plan::Stage& stage);

/// Returns the C++ name of the function that counts a stage's CTAs. Precondition: launchOf() has a row.
std::string ctasFunction(const plan::Stage& stage);

/// Returns the C++ expression for the bytes of a use of the workspace. Empty if launchers do not serve the use.
std::string bytesExpression(const plan::Plan& plan, plan::Use use);

/// Returns what a use of the workspace holds, for people.
std::string_view useWords(plan::Use use);

/// Returns the name that Use and Zeroed have in C++.
std::string_view nameOf(plan::Use use);
std::string_view nameOf(plan::WorkspaceUse::Zeroed zeroed);

} // namespace attnc
