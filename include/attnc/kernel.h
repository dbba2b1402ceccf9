// Kernels: the options that are static in one, its source and machine code, and its launches.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/error.h"
#include "attnc/family.h"
#include "attnc/features.h"
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
#include <string_view>
#include <utility>
#include <vector>

struct CUstream_st; // as in cuda.h; cudaStream_t is the same type

namespace attnc {

/// A CUDA stream of the current context. Null is the null stream.
using Stream = CUstream_st*;

/// What a kernel computes. Kernels of each kind serve any lengths.
enum class KernelKind {
  Forward,   ///< Computes out from q, k and v.
  Backward,  ///< Computes gradients of q, k, v and captures.
  BlockMask, ///< Computes the lists of a block mask from mask_mod.
  Decode,    ///< Computes out, built for few queries over long KV.
};

/// Returns the spelling used in messages and labels: "forward", "backward", "block-mask", "decode".
constexpr std::string_view kindName(KernelKind kind) {
  switch (kind) {
  case KernelKind::Forward: return "forward";
  case KernelKind::Backward: return "backward";
  case KernelKind::BlockMask: return "block-mask";
  case KernelKind::Decode: return "decode";
  }
  return "?";
}

/// Values of KernelOptions::pageSize, in rows of k and v.
inline constexpr std::array kPageSizes{1, 2, 4, 8, 16, 32, 64, 128, 256};

/// Largest KernelOptions::headDim and headDimV.
inline constexpr int kMostHeadDim = 576, kMostHeadDimV = 512;

/// What is static in a kernel (options.def): a change of any member selects another kernel. Lengths, batch, heads,
/// strides, scale and the values of captures are given at launch and never compile.
struct KernelOptions {
  KernelKind kind = KernelKind::Forward; ///< What the kernel computes.
  /// Family of the kernel. Auto: the catalogue picks for the arch; Compiler::prepare() picks for a layout.
  Family family = Family::Auto;
  /// GPU architecture: "sm_80", "sm_90a", ... "sm_90" means "sm_90a". "compute_90" means that GPU with the kernels that
  /// run on all GPUs. Empty: the device of the current CUDA context.
  std::string arch = {};
  DType dtype =
      DType::BF16; ///< Dtype of q, k, v and out: BF16, F16 or F32. With Fp8Kv, of q and out; with Fp8Q, of out.
  /// Head dim of q and k: a multiple of 8 in 8 .. 256. Decode kernels of sm_90a and forward kernels of Family::Naive
  /// take up to kMostHeadDim.
  int headDim = 128;
  /// Head dim of v and out: a multiple of 8 in 8 .. 256. The same kernels take up to kMostHeadDimV. 0: headDim.
  int headDimV = 0;
  /// What launches have beyond q, k, v and out, of kOptionFeatures. Every launch must pass the operands of these.
  /// features.def says what each means.
  Features features = {};
  bool blockSparse = false; ///< Whether launches pass a block mask. If true, every launch must.
  int maskQBlock = 128;     ///< Q rows of a block of the masks: 64, 128 or 256. Read only with blockSparse.
  int maskKvBlock = 128;    ///< KV columns of a block of the masks: 64, 128 or 256. Read only with blockSparse.
  /// Whether blocks of the masks are boxes of tokens (BlockMaskShape::boxes), those of the kernel's tile. For Forward
  /// with blockSparse, and for BlockMask. maskQBlock and maskKvBlock are then not read. Only Forward kernels of family
  /// Grid walk these masks. Only BlockMask kernels compiled with this option build them.
  bool maskByBoxes = false;
  /// Whether full blocks of the masks are also free of masks by score_mod (BlockMaskView::ofWholeMod). If true, only
  /// partial blocks evaluate these masks. If false, every score of a live block calls score_mod. Read only with
  /// blockSparse. It changes nothing if score_mod does not mask.
  bool listsOfWholeMod = false;
  bool columnLists = false; ///< BlockMask: whether launches also fill lists by column. If true, views must have them.
  /// Decode: rows of a tile, 16, 32 or 64; fewer are used if wide heads leave no room. With head dims above 256, tiles
  /// have 64. A row is one query token in one of the heads that share a KV head. A tile reads K and V once for all its
  /// rows. Other kinds do not read it.
  int packedRows = 16;
  /// Where the queries of each sequence stand. FromLengths uses KV_LEN without Lengths. If it is Tensor, every launch
  /// must pass Operands::qOffsets.
  QueryOffsets offsets = QueryOffsets::None;
  /// Rows of a page, one of kPageSizes, if k and v are pools of pages. Every launch must then pass Operands::pageTable.
  /// For Forward and Decode with Lengths. 0: k and v are not paged.
  int pageSize = 0;
  /// Forward, Backward: whether Family::Auto avoids kernels that walk boxes of a grid. If false, Auto takes one if
  /// the mask is a box. If the mod declares no grid, only Compiler::prepare() takes one: it sees the lengths, which say
  /// whether a grid exists.
  bool noBoxes = false;
#define ATTNC_CHOICE(type, member, c_type, name, limit, flag, text) type member = 0;
#include "attnc/choices.def"
  /// Extents and integer or bool scalars of the mod to fold as constants, by name: "KV_LEN" -> 8192. They become part
  /// of the kernel's cache key. A launch that gives another value is an error.
  std::map<std::string, int64_t> pins = {};
  /// Backward: names of the captures whose gradients launches compute. They are float tensors, or float scalars given
  /// at launch.
  std::set<std::string> gradients = {};
  /// Tile of a CTA, spelled as its family does (Plan::tiles). "192x128x12" is rows of q, columns of K and V, warps.
  /// Boxes of a grid are "q1x8x8 kv1x20x4 split1" (sm_90a) or "q1x8x16 kv1x8x8" (others). Empty: the catalogue's model
  /// chooses. Results of different tiles differ only by rounding.
  std::string tile = {};
};

/// Copies the choices of choices.def, between KernelOptions, PrepareOptions and structs like these.
template <class From, class To> void copyChoices(const From& from, To& to) {
#define ATTNC_CHOICE(type, member, c_type, name, limit, flag, text) to.member = from.member;
#include "attnc/choices.def"
}

/// Returns the choices of choices.def that are not the default: {"tf32", "low-rank-error 0.005"}.
std::vector<std::string> choiceWords(const KernelOptions& options);

/// Returns the features that launches of a kernel have: options.features that its kind knows, and those that other
/// options imply.
Features featuresOf(const KernelOptions& options);

/// Generated source of one stage of a kernel: the input of NVRTC, and how to launch the result. A kernel has one or
/// more stages, launched in order on one stream.
struct KernelSource {
  std::string entry;        ///< Name of the __global__ function.
  std::string templateName; ///< File name of the template, such as "forward_sm80.cu".
  std::string text;         ///< Text of the template.
  /// Headers as (name, text): those of the templates, and the two generated ones.
  std::vector<std::pair<std::string, std::string>> headers;
  /// Identity of attnc_mod.cuh, which stands for its text in the cache's key: comments and names make no other kernel.
  /// Empty: the text counts.
  std::string modKey;
  std::string label;                ///< Words "name=value" for people, in messages and packs.
  std::vector<std::string> options; ///< Options of NVRTC, without the arch.
  std::string arch;                 ///< GPU architecture, such as "sm_90a".
  Family family = Family::Naive;    ///< Family of the kernel.

  int threads = 0;                ///< Threads of a CTA.
  int64_t dynamicSharedBytes = 0; ///< Bytes of dynamic shared memory of a CTA.
  /// Tile of a CTA: q rows, kv columns (0 if it has no tile), and the warps that compute it. The stages are how many
  /// tiles of Q, and of K and V, shared memory holds at once; 0 if the kernel has no pipeline.
  int tileRows = 0, tileColumns = 0, warps = 0, qStages = 0, kvStages = 0;

  /// Returns one self-contained .cu: the template with each header pasted in once, in order.
  std::string flattened() const;
};

/// Machine code of one stage of a kernel, not yet loaded on a device.
struct CompiledKernel {
  std::string entry;                   ///< Name of the __global__ function.
  std::string templateName;            ///< File name of the template, as in KernelSource::templateName.
  std::vector<char> cubin;             ///< Bytes of the ELF image.
  std::string ptx;                     ///< PTX that the cubin was assembled from.
  std::string log;                     ///< Output of NVRTC and ptxas.
  int registers = 0;                   ///< Registers of a thread.
  int spillBytes = 0;                  ///< Bytes of spill stores and loads, summed over all functions.
  int64_t staticSharedBytes = 0;       ///< Bytes of static shared memory of a CTA.
  int64_t dynamicSharedBytes = 0;      ///< Bytes of dynamic shared memory of a CTA, as requested by a launch.
  int64_t stackBytes = 0;              ///< Bytes of stack frames, summed over all functions.
  std::vector<std::string> advisories; ///< Lines of ptxas about silently slow code: C7504 and C7510..C7520.
  int order = 0; ///< Order of the template's statements: 0, or another one if ptxas serialises products in that.
  bool fromDisk = false; ///< Whether the call that returned this read it from the disk cache or a pack.
  double compileMs = 0;  ///< Milliseconds of compilation in that call. 0 if a cache had the code.
};

/// The stages of a kernel, in launch order. At least one; the pointers are shared and never null.
using CompiledStages = std::vector<std::shared_ptr<const CompiledKernel>>;

/// Alignment of a workspace, in bytes. Device allocators of CUDA and of its libraries align at least this much.
constexpr size_t kWorkspaceAlignment = 256;

/// A plan, loaded on one device. It is immutable, copies share it, and any number of threads may launch it on any
/// streams of that device. Its code stays loaded while a copy or the Compiler that made it lives. One of them must
/// outlive the launched work.
class Kernel {
public:
  /// Returns the machine code, stage by stage.
  const CompiledStages& compiled() const;
  /// Returns the options of the kernel, with the chosen family and arch.
  const KernelOptions& options() const;

  struct Impl; ///< In src/api.

protected:
  friend struct CompilerAccess; // src/api
  explicit Kernel(std::shared_ptr<const Impl> impl) : impl(std::move(impl)) {}
  std::shared_ptr<const Impl> impl;
};

/// A forward or decode kernel.
class ForwardKernel : public Kernel {
public:
  /// Enqueues all stages on `stream`, in order behind the stream's earlier work. The context that the kernel was loaded
  /// in must be current. It does not read the operands' memory, touch the disk, allocate device memory, synchronise or
  /// compile. It may be captured into a CUDA graph. Faults of the enqueued work show up at the next synchronisation.
  ///
  /// `workspace`: workspaceBytes() of device memory, aligned to kWorkspaceAlignment, owned by the caller. The caller
  /// zeroes it once, before the first launch; each launch restores the zeros that the next one needs. Launches that may
  /// overlap need a workspace each. It may be null for most kernels, which then balance their work less evenly. A
  /// decode kernel without one does not split KV. A decode kernel needs one if the mask's live columns are not an
  /// interval. A forward kernel needs one if it computes a low-rank term of the score in columns of q and k.
  ///
  /// Empty problems (an extent of 0) are legal: KV_LEN 0 gives out 0 and lse -inf.
  ///
  /// Errors (environment), with nothing enqueued: a tensor that does not fit or is null; a layout that the family does
  /// not take. The message names the tensor; a launch never picks another kernel. Also captures or pins that do not fit
  /// the mod, and whatever the driver refuses.
  Status launch(const Operands& operands, const Outputs& outputs, void* workspace, Stream stream) const;

  /// Returns the bytes of device memory that launches with operands of these shapes can use; 0 if none. Reads only what
  /// Compiler::prepare() reads of the operands. Errors (environment): operands that fit neither each other nor the
  /// kernel.
  Expected<size_t> workspaceBytes(const Operands& operands, const Outputs& outputs) const;

private:
  friend class Compiler;
  using Kernel::Kernel;
};

/// The backward kernels of a mod: several launches in order. They compute gradients of q, k and v through out and lse,
/// and of the captures in KernelOptions::gradients. Equal launches give equal bits with Deterministic;
/// otherwise CTAs add in any order.
class BackwardKernel : public Kernel {
public:
  /// Enqueues all stages on `stream`; stream semantics and errors as for ForwardKernel::launch(). With
  /// KernelOptions::blockSparse, the block mask is that of the forward launch. It must have lists by column
  /// (BlockMaskView::columns).
  ///
  /// `workspace`: workspaceBytes() of device memory, aligned to kWorkspaceAlignment, owned by the caller, with any
  /// contents. Launches that may overlap need a workspace each.
  Status launch(const BackwardOperands& operands, const BackwardOutputs& outputs, void* workspace, Stream stream) const;

  /// Returns the bytes of device memory that a launch needs. It is the sum of these parts, in bytes, each aligned to
  /// kWorkspaceAlignment.
  ///
  ///   Delta, row sums   8 per row of q: two of f32 [B, H, Q_LEN]. Naive: 4, row sums only.
  ///   Rows, large lse   16, and 2 per 64 rows of q. Naive: none.
  ///   Sums of dq        4 per element of q, in f32. Naive: none.
  ///                     Sm80, Sm90: Q_LEN is rounded up to a multiple of 128, and D to a multiple of 64.
  ///                     Sm80 needs none if it walks twice: with Deterministic, for F32, or for head dims above 128.
  ///                     Grid on sm_90a: Q_LEN and D are not rounded; 4 in addition.
  ///                     Grid on other GPUs: D is rounded up to a multiple of 16.
  ///   Turns             Sm90: at most 8 per 64 rows of q. Grid with Deterministic: 8 per row of q; not on sm_90a: 4.
  ///   Diagonals         Sm90, if gradients of captures depend only on q_idx - kv_idx: f32 [B, H, Q_LEN + KV_LEN].
  ///   Visits            Sm90 with Deterministic and a block mask: 1 bit per block, in 32-bit words per row of blocks.
  ///                     Blocks are 64 x 64 if `operands` have no block mask.
  ///   Low-rank term     If it is in columns of q and k: 4 per element of q and k, which are copied with their
  ///                     gradients. D is then the head dim with these columns. If the term's numbers of a key depend
  ///                     on b or h, k has B batch entries or H heads. With H heads: also 4 per element of v. If
  ///                     captures in the term want gradients: 2 per element of v.
  ///   Each capture      4 per element of a gradient that is not dense f32.
  ///                     With Deterministic: 80 per element, unless each element is written once.
  ///
  /// In a ragged batch, the rows are those of all sequences and 128 more per sequence: f32 [H, total + 128 B].
  ///
  /// Reads shapes and dtypes of q, k, v and out, and the captures if some get gradients. From `outputs` it reads the
  /// tensors for gradients of captures; if they are missing, the result suffices for any. Errors (environment):
  /// operands that fit neither each other nor the kernel.
  Expected<size_t> workspaceBytes(const BackwardOperands& operands, const BackwardOutputs& outputs = {}) const;

private:
  friend class Compiler;
  using Kernel::Kernel;
};

/// A kernel that builds block masks by evaluating mask_mod.
class BlockMaskKernel : public Kernel {
public:
  /// Enqueues the filling of the lists of `mask` on `stream`; stream semantics as for ForwardKernel::launch(). `mask`
  /// is in device memory, laid out as by BlockMask::viewInto(). It overwrites everything but the entries past each
  /// count. Lists by column are filled if the kernel was compiled with KernelOptions::columnLists. All lists ascend.
  /// Tensors of `captures` are in device memory. A kernel of queries with offsets is launched by Prepared::launch()
  /// only.
  ///
  /// Errors (environment), with nothing enqueued: a shape that BlockMask::build() rejects; null or compacted lists;
  /// lists by column that the kernel does not write. Captures or pins that do not fit the mod.
  Status launch(const BlockMaskView& mask, const ProblemShape& problem, const Captures& captures, Stream stream) const;

private:
  friend struct CompilerAccess; // src/api: makes them for Compiler::prepare()
  using Kernel::Kernel;
};

} // namespace attnc
