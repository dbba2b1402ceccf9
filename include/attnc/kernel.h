// Kernels: what is static in one, what it is made of, and launching it.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/error.h"
#include "attnc/family.h"
#include "attnc/operands.h"
#include "attnc/problem.h"
#include "attnc/tensor.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

struct CUstream_st; // as in cuda.h; cudaStream_t is the same type

namespace attnc {

/// A CUDA stream of the current context; null is the null stream.
using Stream = CUstream_st*;

/// What a kernel computes: out from q, k and v, or gradients of these and of captures, or the lists of a
/// block mask from mask_mod. Decode: as Forward, for few queries over long KV; it serves any lengths.
enum class KernelKind { Forward, Backward, BlockMask, Decode };

/// What KernelOptions::pageSize may be.
inline constexpr std::array kPageSizes{1, 8, 16, 32, 64, 128, 256};

/// What is static in a kernel: a change of any of these is another kernel. Lengths, batch, heads, strides, scale and
/// the captures' values are given at launch and never compile.
struct KernelOptions {
  KernelKind kind = KernelKind::Forward;
  Family family = Family::Auto; ///< Auto: the catalogue picks for the arch; for a layout, Compiler::forLayout
  /// "sm_80", "sm_90a", ...; empty: that of the current CUDA context's device. "sm_90" means "sm_90a"; "compute_90" is
  /// that GPU with the kernels that all GPUs have.
  std::string arch;
  DType dtype = DType::BF16;    ///< of q, k, v, out: BF16, F16, F32
  int headDim = 128;            ///< of q and k: a multiple of 8, 8..256
  int headDimV = 0;             ///< of v and out: the same; 0: headDim
  bool blockSparse = false;     ///< launches pass a block mask, and must
  int maskQBlock = 128;         ///< with blockSparse: block size of the masks to come, 64, 128 or 256
  int maskKvBlock = 128;        ///< the same; else both are not read
  /// With blockSparse: blocks of the masks to come are boxes of tokens (BlockMaskShape::boxes), those of the tile;
  /// maskQBlock and maskKvBlock are not read. Forward kernels of family Grid take such, and the kernel that builds them
  /// is another one.
  bool maskByBoxes = false;
  /// With blockSparse: full blocks of the masks to come hold no masks of score_mod either (BlockMaskView::ofWholeMod),
  /// so these are asked in partial blocks only. Else score_mod is called for every score of a live block. Of mods whose
  /// score_mod has no masks it changes nothing.
  bool listsOfWholeMod = false;
  bool columnLists = false; ///< BlockMask: launches fill lists by column, too, and must be given such
  bool rowMax = false;      ///< launches may ask for the row maximum
  /// Decode: rows of a tile, each a query token in one of the heads that share a KV head: 16, 32 or 64, or fewer
  /// where wide heads leave no room. K and V are read once for a tile's rows. Else not read.
  int packedRows = 16;
  bool fp8Kv = false; ///< Decode: k and v are E4M3, with scales (Operands::kScales). For GPUs from sm_89 on
  bool lengths = false; ///< Forward, Decode: launches pass a KV length for each sequence (Operands::kvLengths), and must
  /// Forward, Decode, and with `ragged` Backward: where the queries of each sequence stand. FromLengths: without `lengths`,
  /// by KV_LEN. With Tensor launches pass Operands::qOffsets, and must.
  QueryOffsets offsets = QueryOffsets::None;
  /// Forward, Decode, with `lengths`: launches pass k and v as pools of pages with a page table (Operands::pageTable),
  /// and must: positions of a page, one of kPageSizes. 0: they do not.
  int pageSize = 0;
  /// Forward, Decode, with `lengths`: launches pass new rows of k and v (Operands::newK, newV), and must, which they
  /// write into k and v before they attend to them.
  bool appends = false;
  bool ragged = false;          ///< Not BlockMask: launches pass Operands::ragged, and must
  /// Forward, Backward: with Family::Auto, boxes of a grid may be walked where the mask is one. Of a mod that declares no
  /// grid they are where operands are known, whose lengths say whether there is one (Compiler::prepare, forLayout).
  bool byGrid = true;
  bool tf32 = false;            ///< F32: one TF32 product instead of three (about 1e-3 instead of 1e-6 relative error)
  /// Extents and integer or bool scalars of the mod that are folded into the kernel, and then part of its key: "KV_LEN"
  /// -> 8192. A launch that gives another value is an error.
  std::map<std::string, int64_t> pins;
  /// Backward: the captures whose gradients launches compute, by name: float tensors, and float scalars given at
  /// launch.
  std::set<std::string> gradients;
  /// Backward: equal launches give equal bits, gradients of captures among them. These then add up exactly, which takes
  /// 80 bytes of workspace for an element of a capture, and no element may get 2^31 contributions.
  bool deterministic = false;
  /// Which tiles a CTA computes, as the family spells them (Compiler::tiles): "192x128x12" (rows of q, columns of K and V,
  /// warps), of boxes of a grid "q1x8x8 kv1x20x4 split1" (sm_90a) or "q1x8x16 kv1x8x8" (others). Empty: those that the
  /// catalogue's model takes. Results of different tiles differ by rounding alone.
  std::string tile;
};

/// Generated text of one stage of a kernel: what NVRTC is given, and how the result is launched. A kernel is one stage
/// or several, launched in order on one stream.
struct KernelSource {
  std::string entry;                                        ///< name of the __global__ function
  std::string templateName;                                 ///< e.g. "forward_sm80.cu"
  std::string text;                                         ///< the template
  std::vector<std::pair<std::string, std::string>> headers; ///< name, text: the templates and the two generated ones
  std::vector<std::string> options;                         ///< of NVRTC, beside the arch
  std::string arch;
  Family family = Family::Naive;

  int threads = 0;                ///< of a CTA
  int64_t dynamicSharedBytes = 0; ///< of a CTA: what a launch asks for
  /// What a CTA computes at a time: q rows and kv columns, 0 where it has no such tile; the warps that do; and, of
  /// kernels with rings, how many tiles of Q and of K and V lie in shared memory at once, else 0.
  int tileRows = 0, tileColumns = 0, warps = 0, qStages = 0, kvStages = 0;

  /// One self-contained .cu: the headers pasted into the template once each, in order.
  std::string flattened() const;
};

/// The machine code of one stage of a kernel, not yet on a device.
struct CompiledKernel {
  std::string entry;        ///< name of the __global__ function
  std::string templateName; ///< as KernelSource::templateName
  std::vector<char> cubin;
  std::string ptx;
  std::string log; ///< of NVRTC and ptxas
  int registers = 0;  ///< of a thread
  int spillBytes = 0; ///< stores and loads, all functions
  int64_t staticSharedBytes = 0;       ///< of a CTA
  int64_t dynamicSharedBytes = 0;      ///< of a CTA: what a launch asks for
  std::vector<std::string> advisories; ///< of ptxas, C7504 and C7510..C7520: code that is silently slow
  bool fromDisk = false;               ///< the call that gave this read it from the disk cache
  double compileMs = 0; ///< what compiling took that call; 0 when it came from the cache, in memory or on disk
};

/// The stages of a kernel, in order of their launch: at least one. Shared, and never null.
using CompiledStages = std::vector<std::shared_ptr<const CompiledKernel>>;

/// What a workspace is aligned to, in bytes. Device allocators of CUDA and of its libraries do no less.
constexpr size_t kWorkspaceAlignment = 256;

/// A loaded kernel and its plan (src/api).
struct LoadedPlan;

/// A forward or a decode kernel, loaded on one device. Immutable; copies share; any number of threads may launch it on any streams
/// of that device. Its code stays loaded as long as a copy or the Compiler that made it lives; one of them must outlive
/// the work that was launched.
class ForwardKernel {
public:
  /// Enqueues all stages on `stream`, which may be the null stream; what `stream` did before is visible to them. The
  /// context that the kernel was loaded in must be current. Checks operands and outputs first and launches nothing on
  /// an error: Blame::Environment, naming the tensor that does not fit, is null, or has a layout that the family does
  /// not take (a launch never picks another kernel); captures or pins that do not fit the mod; what the driver refuses.
  /// It touches no disk, allocates no device memory, synchronises nothing, compiles nothing, reads none of the memory
  /// of the operands, and may be captured into a CUDA graph. Errors of the work itself show where CUDA shows them: at
  /// the next synchronisation.
  ///
  /// `workspace`: workspaceBytes() of device memory at a multiple of kWorkspaceAlignment. A forward kernel runs without
  /// one, too (null), only its work is dealt less evenly: a decode kernel's is then not divided along KV, and one of a mask
  /// whose live columns are no interval needs it. The caller zeroes it once, before the first launch; a launch
  /// leaves what must be zero zero, and two launches that may overlap need a workspace each.
  ///
  /// Empty problems (an extent 0) are legal: KV_LEN 0 gives out 0 and lse -inf.
  Status launch(const Operands& operands, const Outputs& outputs, void* workspace, Stream stream) const;

  /// Bytes of device memory that launches with operands of these shapes can use; 0: none. Of the operands only what
  /// Compiler::prepare() looks at counts. Errors (environment): operands that fit neither each other nor the kernel.
  Expected<size_t> workspaceBytes(const Operands& operands, const Outputs& outputs) const;

  const CompiledStages& compiled() const;
  const KernelOptions& options() const; ///< with family and arch as chosen

private:
  friend class Compiler;
  explicit ForwardKernel(std::shared_ptr<const LoadedPlan> plan) : plan(std::move(plan)) {}
  std::shared_ptr<const LoadedPlan> plan;
};

/// The backward kernels of a mod, several launches in order: gradients of q, k and v through out and lse, and of the
/// captures that KernelOptions::gradients names. Equal launches give equal bits with KernelOptions::deterministic; else
/// CTAs may add up in any order. In all else like ForwardKernel.
class BackwardKernel {
public:
  /// Enqueues. With KernelOptions::blockSparse the block mask is that of the forward launch, and has lists by column
  /// (BlockMaskView::columns). `workspace`: workspaceBytes() of device memory at a multiple of kWorkspaceAlignment,
  /// whatever is in it; launches that may overlap need one each.
  Status launch(const BackwardOperands& operands, const BackwardOutputs& outputs, void* workspace, Stream stream) const;

  /// Bytes of device memory that a launch needs:
  ///
  ///   Sm80, Sm90, Grid   4 a row of q: f32 [B, H, Q_LEN]
  ///                      4 an element of q: sums of dQ in f32, Q_LEN rounded up to a multiple of 128, D to one of 64;
  ///                      Sm80 without, if it walks twice: deterministic, of f32, or with head dims beyond 128;
  ///                      Grid with Q_LEN as it is, D as it is (sm_90a) or rounded up to a multiple of 16 (others)
  ///   Grid (sm_90a)      4 more
  ///   Sm90               at most 8 for 64 rows of q
  ///                      4 a diagonal with gradients of captures that come of q_idx - kv_idx alone: f32 [B, H,
  ///                      Q_LEN + KV_LEN]
  ///                      with KernelOptions::deterministic and a block mask 1 bit a block, in words of a row of
  ///                      blocks; `operands` without it: as for blocks of 64 x 64
  ///   ragged batches     rows of all sequences together, and 128 more for each: f32 [H, total + 128 B]
  ///   captures, each     4 an element of a gradient that is not dense f32; 80 an element with
  ///                      KernelOptions::deterministic, unless each element is written once
  ///
  /// and up to kWorkspaceAlignment between two of these. Of `operands`, shapes and dtypes of q, k, v and out count, and
  /// with gradients of captures the captures. Of `outputs`, the tensors for gradients of captures count; without them,
  /// it is enough for any. Errors (environment): operands that fit neither each other nor the kernel.
  Expected<size_t> workspaceBytes(const BackwardOperands& operands, const BackwardOutputs& outputs = {}) const;

  const CompiledStages& compiled() const;
  const KernelOptions& options() const; ///< with family and arch as chosen

private:
  friend class Compiler;
  explicit BackwardKernel(std::shared_ptr<const LoadedPlan> plan) : plan(std::move(plan)) {}
  std::shared_ptr<const LoadedPlan> plan;
};

/// A kernel that builds block masks by evaluating mask_mod. In all else like ForwardKernel.
class BlockMaskKernel {
public:
  /// Enqueues the filling of the lists of `mask`: device memory, laid out as BlockMask::viewInto does, all of which is
  /// overwritten but the entries past each count; those by column, too, if the kernel was compiled for that
  /// (KernelOptions::columnLists). All lists ascend. Tensors of `captures` are in device memory. Errors (environment):
  /// those of BlockMask::build() for a shape; lists that are null or compacted, or by column where the kernel does not
  /// write them; captures or pins that do not fit.
  Status launch(const BlockMaskView& mask, const ProblemShape& problem, const Captures& captures, Stream stream) const;

  const CompiledStages& compiled() const;
  const KernelOptions& options() const;

private:
  friend class Compiler;
  explicit BlockMaskKernel(std::shared_ptr<const LoadedPlan> plan) : plan(std::move(plan)) {}
  std::shared_ptr<const LoadedPlan> plan;
};

} // namespace attnc
