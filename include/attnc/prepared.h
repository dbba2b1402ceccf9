// Prepared attention: family, layout, block mask and workspace settled once, launched any number of times.
//
//   auto prepared = compiler.prepare(mod, operands, outputs);      // compiles, or takes it from the cache; loads
//   void* workspace = allocate(prepared->workspaceBytes());         // device memory of the caller's
//   prepared->initialise(operands, workspace, stream);              // once, and when a mask's captures change
//   prepared->launch(operands, outputs, workspace, stream);         // any number of times
//
// For training, Compiler::prepareTraining() settles both passes; launchBackward() follows launch().
#pragma once

#include "attnc/kernel.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attnc {

/// What cannot be told from the operands.
struct PrepareOptions {
  Family family = Family::Auto;        ///< of each pass. Auto: the fastest that takes the operands as they lie
  std::string arch;                    ///< empty: that of the current CUDA context's device
  bool tf32 = false;                   ///< as KernelOptions::tf32
  std::map<std::string, int64_t> pins; ///< as KernelOptions::pins
  /// As KernelOptions::offsets; unset: Tensor if qOffsets are given, else FromLengths if kvLengths or
  /// RaggedBatch::cuSeqlensKv are, else None.
  std::optional<QueryOffsets> offsets;
  /// Take a decode kernel (KernelKind::Decode), or do not; unset: where that is faster, for few queries over long KV.
  /// Family must then be Auto or Sm80. Not with block masks, and not for training.
  std::optional<bool> decode;
  bool deterministic = false;          ///< of a backward pass, as KernelOptions::deterministic
  /// Build a block mask where the kernel gains from one. Without, mask_mod is evaluated for every score; so it is where
  /// queries have offsets, which a launch may change. Decode kernels need none (KvLoop::Listed). Of mods that declare a
  /// grid and bound what a query sees along no axis, blocks are boxes (KvLoop::BoxMask): where dsl/SPEC.md §3 says so,
  /// and not for training.
  bool buildBlockMask = true;
  /// As KernelOptions::tile, of the forward or decode kernel. Empty: the choice that Compiler::tune() or tuneTraining()
  /// stored for this device and such a problem, else the model's.
  std::string tile;
  std::string backwardTile; ///< the same of the backward kernel, for training
};

/// Who chose a tile.
enum class TileFrom {
  Model, ///< the catalogue
  Tuned, ///< Compiler::tune() or tuneTraining(), of which the choice is kept
  Asked, ///< PrepareOptions
};

/// How a kernel learns which tiles of kv columns a tile of q rows visits.
enum class KvLoop {
  AllTiles,  ///< it visits all: nothing is masked, or mask_mod is evaluated for every score
  Bounds,    ///< the mod computes the first and last live column of its rows
  BlockMask, ///< lists of blocks in device memory
  Listed,    ///< of a decode kernel: each launch lists the blocks that live before it walks them
  Boxes,     ///< of family grid: the mod computes the box of keys that a query sees, and tiles are boxes, too
  BoxMask,   ///< of family grid: as BlockMask, and blocks are boxes
};

/// What is settled of a backward pass.
struct BackwardPreparation {
  KernelOptions options;            ///< of the backward kernels, complete: family and arch as chosen
  std::string passedOver;           ///< as Preparation::passedOver
  KvLoop kvLoop = KvLoop::AllTiles; ///< which tiles meet, seen from q rows and from kv columns
  std::string tile;                 ///< this and the two below as those of Preparation
  TileFrom tileFrom = TileFrom::Model;
  std::string tunedBy;
};

/// What is settled for given operands.
struct Preparation {
  KernelOptions options; ///< of the forward kernel, complete: family and arch as chosen
  /// Why a family that the catalogue would prefer on this GPU is passed over: the option that it does not serve, or the
  /// tensor whose layout it does not take. Empty where none is.
  std::string passedOver;
  /// Why a decode kernel is taken, or is not. Empty where the caller settled that: by PrepareOptions::decode, a family, a
  /// block mask, or training.
  std::string whyKind;
  KvLoop kvLoop = KvLoop::AllTiles;
  std::optional<BlockMaskShape> blockMask; ///< of the mask that initialise() builds in the workspace; unset: none
  ProblemShape problem;
  size_t workspaceBytes = 0; ///< Prepared::workspaceBytes()
  /// That the kernel computes, as KernelOptions::tile has it. `options` have it, too, unless it is the model's.
  std::string tile;
  TileFrom tileFrom = TileFrom::Model;
  std::string tunedBy; ///< of TileFrom::Tuned: the file of the choice, and its date
  std::optional<BackwardPreparation> backward; ///< set if prepared for training

  /// All kernels that preparing compiles: the forward or decode kernel, then those of the block mask and of the backward
  /// pass, if there are such. To compile or pack ahead of time.
  std::vector<KernelOptions> kernels() const;
};

/// Attention over operands of certain shapes, ready to be launched. Immutable; copies share; any number of threads may
/// use it on any streams of its device. Its code stays loaded as long as a copy or the Compiler that made it lives; one
/// of them must outlive the work that was launched.
class Prepared {
public:
  const Preparation& preparation() const;

  /// Bytes of device memory that initialise() and launch() need, at a multiple of kWorkspaceAlignment: counters of a
  /// few bytes, and behind them the lists of a block mask (BlockMask::storageBytes): 8 bytes a block of 128 x 128, for
  /// each batch entry and head that mask_mod tells apart. For training the lists are by row and by column, 16 bytes a
  /// block, and what BackwardKernel::workspaceBytes() says lies behind them. 0: none, and null will do. The caller owns
  /// it, need not clear it, and keeps it for all launches; launches that may overlap, of either pass, need one each.
  size_t workspaceBytes() const;

  /// Enqueues what makes a workspace ready: counters are zeroed, and the block mask is built from mask_mod and the
  /// captures of `operands`. Due before the first launch with a workspace, in stream order; once more when values of
  /// captures change that mask_mod reads, or when something else wrote into the workspace. Where workspaceBytes() is 0
  /// it does nothing. Of `operands`, shapes and captures count. Allocates no device memory, synchronises nothing,
  /// touches no disk; may be captured into a CUDA graph. The context that prepare() loaded into must be current. Errors
  /// (environment), with nothing enqueued: operands of another problem, a block mask beside the one in the workspace, a
  /// workspace that is null or not aligned, captures that do not fit the mod or the pins; and what the driver refuses.
  Status initialise(const Operands& operands, void* workspace, Stream stream) const;

  /// Enqueues. Operands and outputs may lie elsewhere than those given to prepare() and have other strides, as long as
  /// the family takes them; shapes (of a ragged batch: rows of the tensors, sequences and longest lengths) and dtypes,
  /// which outputs are asked for beside out and lse, and whether a block mask, lengths, offsets, pages and new rows are
  /// given, are those that were prepared. Of family Grid, all tokens lie on the grids of the mod, or beside them if the
  /// mod means such (it has tokens before a grid, or asks which are on it); extents may be others than they were,
  /// unless blocks of the mask are boxes. All else as ForwardKernel::launch(); only that a workspace is needed where
  /// workspaceBytes() is not 0: one that initialise() was enqueued for before, on this stream or one that it waits for.
  Status launch(const Operands& operands, const Outputs& outputs, void* workspace, Stream stream) const;

  /// Enqueues the backward pass: due behind a launch() whose out and lse `operands` have, and that read the same q, k,
  /// v, scale and captures. Precondition: prepared for training; else an error (environment). All else as launch() and
  /// BackwardKernel::launch().
  Status launchBackward(const BackwardOperands& operands, const BackwardOutputs& outputs, void* workspace,
                        Stream stream) const;

  const ForwardKernel& kernel() const;
  const BackwardKernel* backwardKernel() const; ///< null: not prepared for training
  /// Of the block mask in the workspace; null: none is built there.
  const BlockMaskKernel* blockMaskKernel() const;
  /// The lists that initialise() fills; by column, too, if prepared for training. Precondition:
  /// preparation().blockMask.
  BlockMaskView blockMaskIn(void* workspace) const;

private:
  friend class Compiler;
  struct Impl;
  explicit Prepared(std::shared_ptr<const Impl> impl) : impl(std::move(impl)) {}
  std::shared_ptr<const Impl> impl;
};

} // namespace attnc
