// Prepared attention: family, layout, block mask and workspace are settled once. It can be launched any number of
// times.
//
// ```
//   auto prepared = compiler.prepare(mod, operands, outputs);  // from NVRTC or the cache
//   void* workspace = allocate(prepared->workspaceBytes());    // device memory of the caller
//   prepared->initialise(operands, workspace, stream);         // again if a mask's captures change
//   prepared->launch(operands, outputs, workspace, stream);    // any number of times
// ```
//
// For training, Compiler::prepareTraining() settles both passes; launchBackward() follows launch().
#pragma once

#include "attnc/plan.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attnc {

/// Choices that cannot be derived from the operands.
struct PrepareOptions {
  Family family = Family::Auto; ///< Family of each pass. Auto: the fastest one that takes the operands' layout.
  std::string arch = {};        ///< GPU architecture. Empty: the device of the current CUDA context.
#define ATTNC_CHOICE(type, member, c_type, name, limit, flag, text) type member = 0;
#include "attnc/choices.def"
  /// As KernelOptions::pins.
  std::map<std::string, int64_t> pins = {};
  /// As KernelOptions::offsets. Default: Tensor if qOffsets are given; FromLengths if kvLengths or
  /// cuSeqlensKv are given; else None.
  std::optional<QueryOffsets> offsets = {};
  /// Whether to take a decode kernel (KernelKind::Decode). Default: if it is faster, for few queries over long KV. If
  /// true, family must be Auto, Sm90 or Sm80. Not for block masks or training.
  std::optional<bool> decode = {};
  bool deterministic = false; ///< For a backward pass; as Feature::Deterministic.
  /// Whether to build a block mask if the kernel gains from one. Without one, mask_mod is evaluated for every score.
  ///
  /// If queries have offsets, which a launch may change, each launch builds it (KvLoop::Listed). It then has lists of
  /// at most 256 MiB and 512 keys or more. Fewer than 16 rows of blocks have at most 64 blocks each. Otherwise there is
  /// no mask. Decode kernels have lists of their own.
  ///
  /// The mask of a ragged batch is of its longest sequences, so it serves all cumulative lengths. It is built if
  /// maxQLen and maxKvLen are told, except for training. The pairs of these lengths, times the batch of the mask, must
  /// not be more than four times those of the sequences.
  ///
  /// Blocks are boxes (KvLoop::BoxMask) if the mod declares a grid and bounds what a query sees along no axis. See
  /// dsl/SPEC.md §3 for the conditions. Training does not use boxes here.
  bool buildBlockMask = true;
  /// Tile of the forward or decode kernel, spelled as in KernelOptions::tile. Empty: the choice stored by
  /// Compiler::tune() or tuneTraining() for this device and class of problems, else the model's.
  std::string tile = {};
  std::string backwardTile = {}; ///< Tile of the backward kernel, for training. Empty: as for `tile`.
  /// Whether each launch first checks values: lists of a block mask, lengths, offsets, pages, scales, and captured
  /// indices of gathers. It copies these to the host, waits for the stream, and returns the error that computeOnCpu()
  /// gives. It cannot be captured into a CUDA graph. ATTNC_CHECK=1 asks for it as well. For finding mistakes.
  bool check = false;
  /// For training: whether the first launchBackward() compiles and loads the backward kernel, instead of prepare(). The
  /// first forward pass then waits only for its own. Meanwhile another thread may give Preparation::backward to
  /// Compiler::compile(). That first launch must not be captured into a CUDA graph, and the Compiler must live until
  /// then. Kernels of tuned tiles are not left for later.
  bool backwardLater = false;
};

/// The settled choices for given operands.
struct Preparation {
  Plan kernel;                         ///< The forward or decode kernel.
  std::optional<Plan> blockMaskKernel; ///< The kernel that builds the block mask. Unset: none is built.
  std::optional<Plan> backward;        ///< The backward kernel. Set if prepared for training.
  /// Why a decode kernel was taken or not. Empty if the caller decided it: by PrepareOptions::decode, a family, a block
  /// mask, or training.
  std::string whyKind;
  /// Shape of the mask in the workspace, which initialise() builds, or each launch (KvLoop::Listed). Unset: none.
  std::optional<BlockMaskShape> blockMask;
  ProblemShape problem;             ///< Extents of the operands.
  size_t workspaceBytes = 0;        ///< Bytes of workspace: Prepared::workspaceBytes().
  struct Impl;                      ///< In src/api.
  std::shared_ptr<const Impl> impl; ///< What else operands decided, for Compiler::prepare().

  /// Returns the kernel of the pass that was settled last: backward for training, else forward or decode.
  const Plan& last() const { return backward ? *backward : kernel; }
  /// Returns all kernels that prepare() compiles, to compile or pack them ahead of time: `kernel`, then
  /// `blockMaskKernel` and `backward`, if any.
  std::vector<Plan> kernels() const;
};

/// Attention over operands of certain shapes, ready to launch. It is immutable, copies share it, and any number of
/// threads may use it on any streams of its device. Its code stays loaded while a copy or the Compiler that made it
/// lives. One of them must outlive the launched work.
class Prepared {
public:
  /// Returns the settled choices.
  const Preparation& preparation() const;

  /// Returns the bytes of device memory that initialise() and launch() need, aligned to kWorkspaceAlignment. If it is
  /// 0, the workspace may be null.
  ///
  /// The workspace holds a few bytes of counters, then the lists of a block mask (BlockMask::storageBytes). Lists take
  /// 8 bytes per block of 128 x 128, for each batch entry and head that mask_mod tells apart. With offsets they are of
  /// each batch entry. Training needs lists by row and by column, 16 bytes per block, then
  /// BackwardKernel::workspaceBytes().
  ///
  /// The caller owns the workspace, need not clear it, and keeps it for all launches. Launches that may overlap, of
  /// either pass, need a workspace each.
  size_t workspaceBytes() const;

  /// Enqueues the initialisation of a workspace on `stream`: zeroes counters, and builds the block mask from mask_mod
  /// and the captures of `operands`. If each launch builds it, only zeroes counters. Does nothing if workspaceBytes()
  /// is 0.
  ///
  /// Call it before the first launch with a workspace, in stream order. Call it again if captures that mask_mod reads
  /// change, or if something else wrote into the workspace.
  ///
  /// Reads only shapes and captures of `operands`. Does not allocate device memory, synchronise, or touch the disk. It
  /// may be captured into a CUDA graph. The context that prepare() loaded into must be current.
  ///
  /// Errors (environment), with nothing enqueued: operands of another problem; a block mask given in addition to the
  /// one in the workspace. Also a null or misaligned workspace; captures that do not fit the mod or the pins; whatever
  /// the driver refuses.
  Status initialise(const Operands& operands, void* workspace, Stream stream) const;

  /// Enqueues the forward pass on `stream`; stream semantics and errors as for ForwardKernel::launch().
  ///
  /// Compared with prepare(), addresses and strides may differ if the family takes them. The rest must be the same:
  /// shapes, dtypes, the set of outputs, and which optional operands are given. Shapes of a ragged batch are rows of
  /// the tensors, number of sequences and longest lengths. Optional operands are block mask, lengths, offsets, pages
  /// and new rows.
  ///
  /// Family Grid: all tokens must lie on the grids of the mod. Tokens outside a grid are legal if the mod expects them:
  /// it has tokens before a grid, or asks which tokens are on it. Extents may differ, unless blocks of the mask are
  /// boxes.
  ///
  /// The workspace is required if workspaceBytes() is not 0. An earlier initialise() must be enqueued for it, on this
  /// stream or on one that this stream waits for.
  Status launch(const Operands& operands, const Outputs& outputs, void* workspace, Stream stream) const;

  /// Enqueues the backward pass on `stream`, behind the launch() that wrote out and lse of `operands`. That launch must
  /// have read the same q, k, v, scale and captures. Otherwise as launch() and BackwardKernel::launch(). Errors
  /// (environment): not prepared for training; those of launch() and BackwardKernel::launch().
  Status launchBackward(const BackwardOperands& operands, const BackwardOutputs& outputs, void* workspace,
                        Stream stream) const;

  /// Returns the forward or decode kernel.
  const ForwardKernel& kernel() const;
  /// Returns the backward kernel, owned by this object; null if not prepared for training, or not loaded yet
  /// (PrepareOptions::backwardLater).
  const BackwardKernel* backwardKernel() const;
  /// Returns the kernel that builds the block mask in the workspace, owned by this object; null if none is built.
  const BlockMaskKernel* blockMaskKernel() const;
  /// Returns the lists in `workspace` that initialise() or a launch fills, in device memory that the caller owns.
  /// Training also has lists by column. Precondition: `preparation().blockMask` is set.
  BlockMaskView blockMaskIn(void* workspace) const;

private:
  friend class Compiler;
  friend struct PreparedAccess; // src/api: a workspace in two parts
  struct Impl;
  explicit Prepared(std::shared_ptr<const Impl> impl) : impl(std::move(impl)) {}
  std::shared_ptr<const Impl> impl;
};

} // namespace attnc
