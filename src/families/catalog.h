// The catalogue: which family serves a request, and with which plan.
#pragma once

#include "families/request.h"
#include "families/walk_facts.h"
#include "plan/plan.h"

#include <llvm/ADT/STLFunctionalExtras.h>

#include <atomic>
#include <string>
#include <vector>

namespace attnc::plan {

/// Returns the features that some family of this kind takes.
Features takenBy(KernelKind kind);

/// Checks that there are kernels for the head dims, dtypes and block sizes, and that the options fit each other.
Status checkOptions(const KernelOptions& options);

/// Selects a family. `mod`: made for algebraFor(options). With `layout` (from checkLayout()), families that reject that
/// layout are passed over; if one of them was asked for, that is an error. Errors (environment): those of
/// checkOptions(); no family serves the options, or the one asked for does not.
Expected<Request> selectFamily(std::shared_ptr<const KernelMod> mod, const KernelOptions& options,
                               const LaunchOperands* layout = nullptr);

/// selectFamily() for launches that pass a block mask. Its blocks are boxes if the mod declares grids, bounds what a
/// query sees along no axis, and a box kernel takes it. For grids that the mod does not declare, the family must be
/// asked for. Otherwise blocks are runs of tokens, and Request::unserved says why, if there is a reason. The request's
/// options tell which. `mayListBoxes`: false for training, whose passes share lists.
Expected<Request> selectListed(std::shared_ptr<const KernelMod> mod, KernelOptions options,
                               const LaunchOperands* layout, bool mayListBoxes);

/// How many plans were made: a preparation makes one for each of its kernels, which tests hold it to.
inline std::atomic<uint64_t> plansMade = 0;

/// Makes the plan of a request that has a family, with its options' tile. Error (environment): the family has no tile
/// of that spelling.
Expected<Plan> planOf(const Request& request);

/// Checks that a tile of several heads meets as many that share K and V.
Status checkCluster(const codegen::Config& config, const ProblemShape& problem);
/// Returns the possible values of KernelOptions::tile, the model's own first.
std::vector<std::string> candidatesOf(const Request& request);

/// Returns the model's tile for a launch. Empty: the default. `facts` is called if the tile depends on it.
std::string tileOfLaunch(const Request& request, llvm::function_ref<WalkFacts()> facts);

/// Returns the tiles that launches choose from, by their operands. "": the default.
std::vector<std::string> tilesOfLaunches(const Request& request);

/// Whether launches gain from a block mask: the mod masks something, and the family cannot bound its own loops.
bool wantsBlockMask(const Request& request);

} // namespace attnc::plan
