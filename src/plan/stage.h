// A launch of a plan: a template, what is static in it, and the functions that a launch asks.
#pragma once

#include "codegen/config_source.h"
#include "launch/workspace.h"
#include "plan/kernel_mod.h"

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>

namespace attnc::plan {

/// Properties of the device that a launch depends on.
struct Device {
  int multiprocessors = 0;
  int64_t l2Bytes = 0;
};

/// The bytes of a kernel's first parameter, a struct of templates/params*.cuh. The second parameter is ModArgs.
class ParameterBlock {
public:
  static constexpr size_t kMostBytes = 4096;

  template <class Params> explicit ParameterBlock(const Params& params) : used(sizeof(Params)), clear(clearOf<Params>) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= kMostBytes &&
                  alignof(Params) <= kAlignment);
    std::memcpy(bytes.data(), &params, sizeof(Params));
  }
  ParameterBlock(const ParameterBlock& other) : used(other.used), clear(other.clear) {
    std::memcpy(bytes.data(), other.bytes.data(), used);
  }
  void* data() { return bytes.data(); }
  size_t size() const { return used; }
  /// Makes the padding zero, where the compiler can, so that equal parameters are equal bytes.
  /// NOTE: padding in or behind an array makes GCC 12 clear members. So structs with arrays have none.
  void clearPadding() { clear(bytes.data()); }
  /// Precondition: the block was made of these parameters.
  template <class Params> const Params& as() const { return *reinterpret_cast<const Params*>(bytes.data()); }

private:
  static constexpr size_t kAlignment = 64; // of tensor maps
  template <class Params> static void clearOf([[maybe_unused]] void* params) {
#if defined(__has_builtin) && __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(static_cast<Params*>(params));
#endif
  }
  alignas(kAlignment) std::array<std::byte, kMostBytes> bytes;
  size_t used;
  void (*clear)(void* params);
};

struct Stage;
/// Returns the CTAs of a launch. Precondition: the launch runs the stage.
using CountCtas = std::function<int64_t(const Stage& stage, const LaunchOperands& operands, const Device& device)>;
/// Returns the tiles that a stage's kernel numbers. May be 2^64 - 1 for problems that fit into no memory.
using CountTiles = std::function<uint64_t(const Stage& stage, const LaunchOperands& operands)>;
/// Returns a stage's parameters. Precondition: the launch has at least one CTA. `workspace`: the plan's. Errors
/// (environment): a layout that the stage does not take, or anything that the driver refuses.
using MakeParameters = std::function<Expected<ParameterBlock>(const Stage& stage, const LaunchOperands& operands,
                                                              const Device& device, const WorkspaceView& workspace)>;

/// Returns the tiles of q, or of k and v if these are more: CountTiles of most stages.
uint64_t tilesOfRows(const Stage& stage, const LaunchOperands& operands);

/// One launch of one template.
struct Stage {
  std::string templateName;    ///< in templates/
  std::string entry;           ///< name of the __global__ function
  codegen::Config config;      ///< includes the shared memory that a CTA asks for
  passes::Algebra algebra;     ///< whose hooks the template calls (templates/mod/contract.cuh)
  bool callsGradients = false; ///< whether it calls the hooks for gradients of captures
  bool onGrid = false;         ///< whether it calls the hooks for boxes
  bool judges = false;         ///< whether it calls the hook for blocks of scores
  bool reduces = false;        ///< whether it calls the hooks for reductions
  bool walksSecond = false;    ///< whether it belongs to the second walk of two: passes/two_walks.h
  bool forCaptures = false;    ///< backward: whether it also runs if only captures want gradients
  int threads = 0;             ///< per CTA
  CountCtas ctas;
  CountTiles tiles = tilesOfRows;
  MakeParameters parameters;
};

/// Returns the form of the mod that a stage's template is written from.
inline ModForm formOf(const Stage& stage) {
  return {stage.algebra, stage.callsGradients, stage.onGrid, stage.judges, stage.reduces, stage.walksSecond};
}

/// Returns the parameters of a stage, with those of a cache if its config says that it uses one.
template <class Params>
ParameterBlock withCache(const Params& params, const Stage& stage, const LaunchOperands& operands) {
  if (!stage.config.pageSize && !stage.config.appends) return ParameterBlock(params);
  return ParameterBlock(Cached<Params>{params, cacheParams(operands)});
}

/// withCache() for forward kernels: also with the factors of q, k and v if these are e4m3.
template <class Params>
ParameterBlock withScales(const Params& params, const Stage& stage, const LaunchOperands& operands) {
  if (!stage.config.fp8.value_or(false)) return withCache(params, stage, operands);
  const Scaled<Params> scaled{params, scalesOf(operands.qScales), scalesOf(operands.kScales),
                              scalesOf(operands.vScales)};
  return withCache(scaled, stage, operands);
}

/// Returns the CTAs of a launch; 0 if the launch does not run the stage.
int64_t ctasOf(const Stage& stage, const LaunchOperands& operands, const Device& device);

/// CountCtas: one per tile of q rows of each (batch, head); per tile of kv columns of each (kv batch, kv head).
int64_t perQTile(const Stage& stage, const LaunchOperands& operands, const Device& device);
int64_t perKvTile(const Stage& stage, const LaunchOperands& operands, const Device& device);
/// CountCtas: one per tile of kv columns of each query head.
int64_t perKvTileOfEachQHead(const Stage& stage, const LaunchOperands& operands, const Device& device);
/// CountCtas: one per `warps` rows of q; of k.
int64_t perQRow(const Stage& stage, const LaunchOperands& operands, const Device& device);
int64_t perKvRow(const Stage& stage, const LaunchOperands& operands, const Device& device);
/// CountCtas: one per row of blocks of the lists; per `warps` columns of blocks.
int64_t perMaskRow(const Stage& stage, const LaunchOperands& operands, const Device& device);
int64_t perMaskColumn(const Stage& stage, const LaunchOperands& operands, const Device& device);
/// Returns a CountCtas that is capped at `each` per multiprocessor, for CTAs that take one tile after another.
CountCtas persistent(CountCtas count, int each = 1);

} // namespace attnc::plan
