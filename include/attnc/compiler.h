// The compiler: mods in, kernels out.
#pragma once

#include "attnc/error.h"
#include "attnc/kernel.h"
#include "attnc/log.h"
#include "attnc/mod.h"
#include "attnc/operands.h"
#include "attnc/prepared.h"
#include "attnc/tuning.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attnc {

/// What NVRTC takes some seconds for; see CompilerOptions::maxWork.
constexpr int64_t kDefaultMaxWork = 16'000;

struct CompilerOptions {
  /// ReadOnly: entries are read from disk and none is written. Off: the disk is not touched.
  enum class CacheMode { ReadWrite, ReadOnly, Off };
  std::string cacheDirectory;         ///< empty: ATTNC_CACHE_DIR, else XDG_CACHE_HOME/attnc, else ~/.cache/attnc
  std::optional<CacheMode> cacheMode; ///< unset: ATTNC_CACHE_MODE, else ReadWrite
  std::string nvrtcPath;              ///< empty: ATTNC_NVRTC, else the usual places
  /// Paths of packs (Compiler::pack), searched before those of ATTNC_PACK, and all of them before the cache. They are
  /// opened when a kernel is first needed; one that cannot be opened, or that another version of attnc made, is then an
  /// error (environment) of every call that needs a kernel.
  std::vector<std::string> packs;
  /// A kernel that is in no pack and in no cache is an error (environment), which names it, and nothing is compiled; so
  /// it is where ATTNC_NO_COMPILE is 1. Kernels of any NVRTC build serve then.
  bool noCompile = false;
  /// Choices of tune() and tuneTraining() are looked up by prepare(), settle() and those for training; unset: unless
  /// ATTNC_TUNED is 0.
  std::optional<bool> tuned;
  /// The device, by name ("NVIDIA H200"), whose choices are looked up; empty: that of the current context. settle()
  /// with an arch looks at no device, and looks none up without a name.
  std::string tunedDevice;
  /// Instructions of a mod in a kernel, roughly, counted before NVRTC sees them: a mod of more is an error (mod), since
  /// nothing stops NVRTC, whose time grows with them and which a mod of 1 kB else keeps busy for minutes. Each place
  /// where a capture gets a gradient counts 1500. Text is written of a million at most. 0: ATTNC_MAX_WORK, else
  /// kDefaultMaxWork.
  int64_t maxWork = 0;
  /// Is told what the compiler and its cache do, and, once each, why a cache directory is not used and which variables
  /// of the environment make no sense. ATTNC_LOG gets the same lines. Called by the threads that call the Compiler,
  /// perhaps several at once; it must not throw, nor call the Compiler.
  LogSink log;
};

/// Options that serve operands of some layout.
struct LayoutChoice {
  KernelOptions options;  ///< as asked, but for the family where a layout rules the preferred one out
  std::string passedOver; ///< the tensor whose layout did, and what of it; empty where none did
};

/// A kernel to be packed. The options name an arch.
struct PackItem {
  Mod mod;
  KernelOptions options;
};

/// Turns mods into kernels. Thread-safe; make one per process and keep it: it holds the in-memory cache, which only
/// grows. Copies share it. What touches the disk: compile() and what calls it read and write the cache directory, and
/// ATTNC_DUMP_DIR and ATTNC_LOG where these are set. A GPU is whatever the current CUDA context of the calling thread
/// is on; attnc makes no context of its own. The environment is read once, by the constructor.
class Compiler {
public:
  /// Opens nothing yet: neither libraries nor the cache directory.
  explicit Compiler(CompilerOptions options = {});

  /// Settles family, layout, block mask and workspace for operands like these, compiles what is needed (or takes it
  /// from memory or disk) and loads it into the current CUDA context: half a second at first, microseconds from then
  /// on. Needs libnvrtc only on a miss. Of the operands, shapes, dtypes, strides and the alignment of addresses count;
  /// null is aligned. With a block mask given, launches walk that one. Captures may be missing; given ones are checked.
  /// Family Grid is taken where these say that all tokens lie on the grids of the mod, those that it declares or takes
  /// positions apart by; on Hopper beside them, too, if the mod means such. Outputs: `out`, and what else launches will
  /// ask for. Errors (environment): those of settle(); no GPU or no context; no NVRTC, where it is needed.
  Expected<Prepared> prepare(const Mod& mod, const Operands& operands, const Outputs& outputs,
                             const PrepareOptions& options = {}) const;

  /// The first half of prepare(): what would be chosen, and why. Needs no GPU if `options.arch` is given; compiles
  /// nothing. Errors (environment): operands that fit neither each other nor the mod, by name; no `out`; options that
  /// no kernel serves; a family that does not serve them or the layout, where one is asked for.
  Expected<Preparation> settle(const Mod& mod, const Operands& operands, const Outputs& outputs,
                               const PrepareOptions& options = {}) const;

  /// prepare() for training: of the forward pass, and of the backward one behind it, each with a family of its own.
  /// `outputs`: of the forward pass; `operands` have its out and lse again. Addresses may be null here, of gradients,
  /// too. Captures that `gradients` has tensors for get gradients; then captures must be given.
  Expected<Prepared> prepareTraining(const Mod& mod, const BackwardOperands& operands, const Outputs& outputs,
                                     const BackwardOutputs& gradients, const PrepareOptions& options = {}) const;

  /// The first half of prepareTraining(), as settle() is of prepare().
  Expected<Preparation> settleTraining(const Mod& mod, const BackwardOperands& operands, const Outputs& outputs,
                                       const BackwardOutputs& gradients, const PrepareOptions& options = {}) const;

  /// Measures which tile is the fastest for operands like these, and keeps the choice in the cache directory, for all
  /// processes: prepare() then takes it for this device, mod, options, and problems of this class: the same heads a KV
  /// head and head dims; lengths of the same power of two, of decode kernels KV heads of all batches, too; of grids the
  /// same extents. It is advice, and never needed: a choice of another version of attnc is not looked at. Compiles the
  /// tiles of the family that prepare() takes (tiles()), launches each many times on `stream`, for some seconds, and
  /// goes by events. The model's tile stays unless another one is faster by more than 2 %, and gives the same results
  /// up to rounding. A tile that does not compile is passed over. Operands and outputs are those of a launch, in device
  /// memory; what outputs hold is overwritten. Options have no tile. Takes device memory: a workspace for each tile,
  /// which those of a backward kernel share. Errors: those of prepare() and Prepared::launch() of the model's tile; a
  /// problem that has nothing to compute; and what the driver refuses. Not to be called while `stream` is captured.
  Expected<Tuning> tune(const Mod& mod, const Operands& operands, const Outputs& outputs, const PrepareOptions& options = {},
                        Stream stream = nullptr) const;

  /// tune() for training, as prepareTraining() is prepare() for it: first of the forward kernel, then of the backward
  /// one behind a launch of that. A pass whose tile the options have keeps it, and is not measured. All tensors are
  /// those of Prepared::launch() and launchBackward(), gradients of q, k and v among them: these must be the same with
  /// another tile, up to rounding. Those of captures, which add up in any order, are not compared. Errors: those of
  /// tune(); both tiles are given; no gradients of q, k and v.
  Expected<Tuning> tuneTraining(const Mod& mod, const BackwardOperands& operands, const Outputs& outputs,
                                const BackwardOutputs& gradients, const PrepareOptions& options = {},
                                Stream stream = nullptr) const;

  // The finer calls, for who wants to choose by himself.

  /// The text NVRTC would be given, of each stage. Needs no NVRTC, no disk, and no GPU if `options.arch` is given.
  /// Errors (environment): options that no kernel serves; an unknown arch; pins that the mod does not have. Mod: more
  /// work than CompilerOptions::maxWork.
  Expected<std::vector<KernelSource>> source(const Mod& mod, const KernelOptions& options) const;

  /// What KernelOptions::tile may be for the kernel that these options get, the tile that the catalogue takes without
  /// first. Their tile is not read. Empty: a kernel without tiles. Needs no GPU if `options.arch` is given. Errors:
  /// those of source().
  Expected<std::vector<std::string>> tiles(const Mod& mod, KernelOptions options) const;

  /// Compiles all stages, or takes them from memory or disk. Needs libnvrtc on a miss, no GPU if `options.arch` is
  /// given. Equal requests of several threads and processes compile once; the others wait. No failure of the cache
  /// fails the call. Errors (environment): those of source(); no NVRTC 13. Internal: code that NVRTC refuses.
  Expected<CompiledStages> compile(const Mod& mod, const KernelOptions& options) const;

  /// A pack: one file with all stages of these kernels, compiled or taken from memory or disk as by compile(), which
  /// CompilerOptions::packs and addPack() open where there is neither NVRTC nor a cache. Which kernels operands take,
  /// Preparation::kernels() says. The bytes are to be written as they are, under any name, best by rename. Needs no
  /// GPU. Errors: those of compile(), for the first kernel that has one.
  Expected<std::string> pack(const std::vector<PackItem>& items) const;

  /// Opens a pack, which is searched after those that the compiler has. Whoever may write the file decides what code
  /// runs on the GPU. The file stays open, and may be replaced by rename. Errors (environment): it cannot be opened, is
  /// damaged, or was made by another version of attnc.
  Status addPack(const std::string& path);

  /// Whether launches of this kernel gain from a block mask: the mod masks something, and the kernel that would be
  /// chosen cannot bound its loops by itself (sm80 and sm90 can for causal, window, prefix and the like). `blockSparse`
  /// of the options is ignored, their pins are not.
  Expected<bool> wantsBlockMask(const Mod& mod, KernelOptions options) const;

  /// The options for launches with operands laid out like these: ask with them for wantsBlockMask(), then
  /// loadForward(). Where the catalogue would pick Sm90 and the copy engine (TMA) cannot describe the layout, family is
  /// Sm80; else the options are those given. Sm90 takes q, k, v and out at multiples of 16 bytes, and strides over
  /// batch, heads and rows that are multiples of 16 bytes, above 0 and below 2^40 bytes; those over the batch may be 0.
  /// Strides along an extent of 1, or of an empty tensor, do not matter. Of the operands only what prepare() looks at
  /// counts, and no block mask. Needs no GPU if `options.arch` is given. Errors (environment): tensors that fit neither
  /// the options nor each other, by name; a layout that Sm90 does not take where Sm90 is asked for; options that no
  /// kernel serves.
  Expected<LayoutChoice> forLayout(const Mod& mod, const KernelOptions& options, const Operands& operands,
                                   const Outputs& outputs) const;

  /// compile(), then load into the current CUDA context. From memory this costs microseconds. `options.kind` is not
  /// read.
  Expected<ForwardKernel> loadForward(const Mod& mod, KernelOptions options) const;
  /// The same.
  Expected<BackwardKernel> loadBackward(const Mod& mod, KernelOptions options) const;
  /// The same; of the options, arch, pins and columnLists count.
  Expected<BlockMaskKernel> loadBlockMask(const Mod& mod, KernelOptions options) const;

private:
  struct Impl;
  std::shared_ptr<Impl> impl;
};

} // namespace attnc
