// What a Compiler holds, and the steps from mods and options to loaded kernels: derive, plan, build, load.
#pragma once

#include "api/kernel_impl.h"
#include "api/plan_impl.h"
#include "api/tuned.h"
#include "attnc/compiler.h"
#include "families/catalog.h"
#include "jit/current_device.h"
#include "jit/env.h"
#include "jit/kernel_cache.h"
#include "jit/packs.h"

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attnc {

/// Fills in the arch of the current context's device if none is given.
Expected<KernelOptions> withArch(KernelOptions options);

/// Returns the options of the block mask kernel for a kernel with `options`. Everything that is not static in the mask
/// kernel is reset, so that equal kernels have equal keys.
KernelOptions blockMaskOptions(const KernelOptions& options);

/// Checks captures, and fills in the grids that they determine. If `captures` is null, the grids stay unknown. `grid`:
/// the mod's, or null.
Status bindCaptures(const Mod& mod, const Captures* captures, const passes::GridKernel* grid,
                    plan::LaunchOperands& operands, const std::map<std::string, int64_t>& pins);

/// The layout of a workspace, the forward pass's uses, then the backward pass's; and what else operands decided.
struct Preparation::Impl {
  plan::WorkspaceLayout workspace;
  std::optional<plan::WorkspaceLayout> backwardWorkspace = {};
  int64_t qRows, kvRows;  ///< of the tensors of q, and of k and v; for a ragged batch, more than the problem's lengths
  std::string shapeClass; ///< shapeClassOf() the operands
  std::string backwardShapeClass = {}; ///< the same for the backward pass; empty without one
};

/// Returns where the workspace of the backward pass begins, after that of the forward pass.
size_t backwardOffset(const plan::WorkspaceLayout& forward);

/// What a backward pass reads and writes.
struct Training {
  const BackwardOperands& operands;
  const BackwardOutputs& gradients;
};

struct PassToTune; // tune.cpp
struct TunedPass;

struct Compiler::Impl {
  explicit Impl(const CompilerOptions& options);

  /// derive(), with a memory of the mods that take time to derive.
  Expected<Mod> derived(const Mod& mod, const KernelOptions& options);

  /// Compiler::plan() for options that have an arch.
  Expected<Plan> planFor(const Mod& mod, const KernelOptions& options);

  /// Returns a plan's machine code: from memory, or written and compiled.
  Expected<CompiledStages> build(const Plan& plan);

  /// Returns what build() will return. Another thread calls it, unless this process has built the plan.
  std::future<Expected<CompiledStages>> building(const Plan& plan);

  /// Whether load() would find the plan.
  bool isLoaded(const Plan& plan);

  /// Loads a plan into the current context, after build(). `compiled`: of building() the plan.
  Expected<std::shared_ptr<const Kernel::Impl>> load(const Plan& plan,
                                                     std::future<Expected<CompiledStages>> compiled = {});

  /// Whose tuned tiles settle() looks up.
  enum class Lookup {
    None,
    Named,  ///< those of CompilerOptions::tunedDevice
    Device, ///< those of tunedDevice, or of the current context's device if it is empty
  };

  /// Decides what prepare() will launch. `training`: null for only the forward pass.
  Expected<Preparation> settle(const Mod& mod, const Operands& operands, const Outputs& outputs,
                               const PrepareOptions& options, Lookup lookup, const Training* training = nullptr);

  /// The second half of `compiler`.prepare() and prepareTraining(). `checks`, `backwardLater`: of PrepareOptions.
  static Expected<Prepared> prepared(const Compiler& compiler, Preparation preparation, bool checks = false,
                                     bool backwardLater = false);

  /// Both halves of preparing. If the kernel of a tuned tile cannot be built or loaded, takes that of the model's tile.
  static Expected<Prepared> prepare(const Compiler& compiler, const Mod& mod, const Operands& operands,
                                    const Outputs& outputs, const PrepareOptions& options,
                                    const Training* training = nullptr);

  /// Implements `compiler`.tune() and tuneTraining(). `training`: null for only the forward pass.
  static Expected<Tuning> tune(const Compiler& compiler, const Mod& mod, const Operands& operands,
                               const Outputs& outputs, const PrepareOptions& options, Stream stream,
                               const Training* training = nullptr);

  /// Compiles a program without a mod.
  Expected<CompiledKernel> compileProgram(const KernelSource& source) { return cache.getOrCompile(source); }

  /// Compiler::pack().
  Expected<std::string> pack(const std::vector<Plan>& plans);

  jit::Packs& openPacks() { return *packs; }

private:
  /// Tunes one pass.
  static Expected<TunedPass> tunePass(const Compiler& compiler, const Mod& mod, const PassToTune& pass,
                                      const PrepareOptions& options);

  std::string deviceOf(Lookup lookup, const std::string& arch) const;

  jit::Env env;
  cache::Log log;
  std::shared_ptr<jit::Packs> packs;
  jit::KernelCache cache;
  int64_t maxWork;
  bool looksUpTuned;
  std::string tunedDevice;
  TunedChoices tuned;
  std::mutex mutex;
  std::map<std::string, Mod> derivedMods;      // by mod, pins and kind
  std::map<std::string, CompiledStages> built; // by codeKey() of plans; marked as if they came from memory
  std::map<std::pair<CUctx_st*, std::string>, std::shared_ptr<const Kernel::Impl>> loaded; // by context and codeKey()
};

} // namespace attnc
