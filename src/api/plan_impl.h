// What a Plan holds.
#pragma once

#include "api/mod_impl.h"
#include "attnc/plan.h"
#include "families/catalog.h"
#include "plan/assemble.h"

#include <memory>
#include <utility>
#include <vector>

namespace attnc {

/// The mods that the stages of a plan are written from.
using StageMods = std::vector<std::shared_ptr<const plan::KernelMod>>;

struct Plan::Impl {
  Mod given; ///< as asked for
  Mod mod;   ///< derived for the options
  plan::Request request;
  plan::Plan plan;
  int64_t maxWork; ///< CompilerOptions::maxWork
  KvLoop kvLoop;
  TileFrom tileFrom;
  std::string passedOver, tunedBy = {};

  /// Writes the mods of all stages; costs little after the first time. Error (mod): more work than maxWork.
  Expected<StageMods> stageMods() const;
  /// Returns the source of a stage. `mods`: stageMods().
  KernelSource source(const StageMods& mods, size_t stage) const;
};

struct PlanAccess {
  using Impl = Plan::Impl;

  static const Impl& of(const Plan& plan) { return *plan.impl; }
  static Plan make(Impl impl) { return Plan(std::make_shared<const Impl>(std::move(impl))); }
};

/// Chooses the kernel of a mod for these options, which have an arch. `derived`: derive() for them. Errors: those of
/// Compiler::plan(), but for the work.
Expected<Plan> planned(const Mod& given, Mod derived, const KernelOptions& options, int64_t maxWork);

/// Returns how a kernel finds its tiles. `listsAnew`: whether each launch builds the block mask.
KvLoop kvLoopOf(const plan::Request& request, bool listsAnew = false);

/// Returns why a preferred family was passed over.
std::string passedOverBy(const plan::Request& request);

} // namespace attnc
