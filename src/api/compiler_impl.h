// What a Compiler holds, and the steps of the way from mods and options to loaded kernels: derive, plan, build, load.
#pragma once

#include "api/kernel_impl.h"
#include "api/tuned.h"
#include "attnc/compiler.h"
#include "jit/current_device.h"
#include "jit/env.h"
#include "jit/kernel_cache.h"
#include "jit/packs.h"
#include "plan/catalog.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attnc {

/// Fills in the arch of the current context's device where none is named.
Expected<KernelOptions> withArch(KernelOptions options);

/// The options of the block mask kernel beside such a kernel: what else they say is not static in it, and equal kernels
/// are to have equal keys.
KernelOptions blockMaskOptions(const KernelOptions& options);

/// Checks captures, and says what grids they make. Those of null are not known. `grid`: of the mod; may be null.
Status bindCaptures(const Mod& mod, const Captures* captures, const passes::GridKernel* grid, plan::LaunchOperands& operands,
                    const std::map<std::string, int64_t>& pins);

/// What is settled for operands, and where things lie in their workspace: those of the forward pass, and behind them
/// those of the backward one.
struct Settled {
  Preparation preparation;
  plan::WorkspaceLayout workspace;
  std::optional<plan::WorkspaceLayout> backwardWorkspace;
  int64_t qRows, kvRows; ///< of the tensors of q, and of k and v: of a ragged batch more than the problem's lengths
  std::string shapeClass;         ///< shapeClassOf() the operands
  std::string backwardShapeClass; ///< of those of the backward pass; empty without
};

/// Where the workspace of the backward pass begins, behind that of the forward one.
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

  /// derive(), from memory where that takes time.
  Expected<Mod> derived(const Mod& mod, const KernelOptions& options);

  /// A plan's machine code, and how this call came by it.
  struct Build {
    std::shared_ptr<const BuiltPlan> plan;
    CompiledStages compiled;
  };

  /// A plan with what NVRTC is given of each of its stages.
  struct Written {
    Mod mod; ///< that the plan is of: derived
    plan::Plan plan;
    std::vector<std::vector<codegen::ArgWord>> slots; ///< of each stage
    std::vector<jit::CompileJob> jobs;                ///< of each stage
  };

  /// A plan with its mod in the form of each stage.
  struct Chosen {
    Mod mod; ///< that the plan is of: derived
    plan::Plan plan;
    std::vector<std::shared_ptr<const plan::KernelMod>> stages;
  };

  /// `derived`: the mod of these options, which have an arch. Errors: those of planning; too much work.
  Expected<Chosen> choose(Expected<Mod> derived, const KernelOptions& options) const;

  /// `options` have an arch.
  Expected<Written> write(const Mod& mod, const KernelOptions& options);

  /// From memory, or planned, written and compiled. `options` have an arch.
  Expected<Build> build(const Mod& mod, const KernelOptions& options);

  /// build(), then load into the current context.
  Expected<std::shared_ptr<const LoadedPlan>> load(const Mod& mod, const KernelOptions& options);

  /// Whose choices of tiles settle() looks up.
  enum class Lookup {
    None,
    Named,  ///< those of CompilerOptions::tunedDevice
    Device, ///< or of the current context's device
  };

  /// `training`: null for the forward pass alone.
  Expected<Settled> settle(const Mod& mod, const Operands& operands, const Outputs& outputs,
                           const PrepareOptions& options, Lookup lookup, const Training* training = nullptr);

  /// The second half of prepare() and of prepareTraining(), of a compiler that this belongs to.
  static Expected<Prepared> prepared(const Compiler& compiler, const Mod& mod, Settled settled);

  /// Both halves. Where the kernel of a measured choice is not to be had, that of the model's.
  static Expected<Prepared> prepare(const Compiler& compiler, const Mod& mod, const Operands& operands, const Outputs& outputs,
                                    const PrepareOptions& options, const Training* training = nullptr);

  /// Compiler::tune() and tuneTraining(), of a compiler that this belongs to. `training`: null for the forward pass
  /// alone.
  static Expected<Tuning> tune(const Compiler& compiler, const Mod& mod, const Operands& operands,
                               const Outputs& outputs, const PrepareOptions& options, Stream stream,
                               const Training* training = nullptr);

  /// Compiler::pack().
  Expected<std::string> pack(const std::vector<PackItem>& items);

  jit::Packs& openPacks() { return *packs; }

private:
  /// One pass of tune().
  static Expected<TunedPass> tunePass(const Compiler& compiler, const Mod& mod, const PassToTune& pass,
                                      const PrepareOptions& options);

  /// Whether a kernel is no more work for NVRTC than the options allow.
  Status checkWork(const Mod& mod, const plan::KernelMod& kernelMod, const plan::Stage& stage) const;

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
  std::map<std::string, Mod> derivedMods;                                                     // by mod, pins and kind
  std::map<std::string, std::shared_ptr<const BuiltPlan>> built;                              // by mod and options
  std::map<std::pair<CUctx_st*, const BuiltPlan*>, std::shared_ptr<const LoadedPlan>> loaded; // by context and plan
};

} // namespace attnc
