// Which tile a kernel gets: the one that is asked for, a tuned one, or the model's.
#pragma once

#include "api/plan_impl.h"
#include "api/tuned.h"
#include "families/catalog.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace attnc {

/// Finds a tuned tile for a request.
using TileLookup =
    std::function<std::optional<FoundChoice>(const plan::Request& request, const std::string& shapeClass)>;

/// What the kernels of a mod have in common.
struct Context {
  const Mod& mod;
  TileLookup lookup;
  int64_t maxWork; ///< CompilerOptions::maxWork
};

/// Returns the tile that the model has for the operands. Empty: the default.
std::string modelTile(const plan::Request& request, const Captures* captures, const ProblemShape& problem);

/// Makes the plan of a request, with the tile that was asked for, else with the tuned one, else with the model's. A
/// tuned tile that is the default shares its kernel.
Expected<Plan> planTiled(const Context& context, const Mod& derived, plan::Request request, const std::string& asked,
                         const std::string& ofModel, const std::string& shapeClass, std::string passedOver,
                         bool listsAnew = false);

} // namespace attnc
