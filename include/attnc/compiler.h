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

/// Default of CompilerOptions::maxWork, in instructions. NVRTC takes some seconds for this.
constexpr int64_t kDefaultMaxWork = 16'000;

/// Options of a compiler. The environment is read once, when the Compiler is constructed.
struct CompilerOptions {
  /// Use of the disk cache.
  enum class CacheMode {
    ReadWrite, ///< Entries are read and written.
    ReadOnly,  ///< Entries are read and none is written.
    Off,       ///< The disk is not touched.
  };
  /// Directory of the disk cache. Default: ATTNC_CACHE_DIR, else `$XDG_CACHE_HOME/attnc`, else `~/.cache/attnc`.
  std::string cacheDirectory = {};
  std::optional<CacheMode> cacheMode = {}; ///< Use of the disk cache. Default: ATTNC_CACHE_MODE, else ReadWrite.
  std::string nvrtcPath = {};              ///< Path of libnvrtc. Default: ATTNC_NVRTC, else the usual places.
  /// Paths of packs (Compiler::pack). Searched in this order: these packs, those of ATTNC_PACK, the cache. Packs are
  /// opened when a kernel is first needed. If one cannot be opened, or another version of attnc made it, every call
  /// that needs a kernel returns an error (environment).
  std::vector<std::string> packs = {};
  /// Whether to compile nothing: a kernel missing from packs and cache is then an error (environment) that names it.
  /// Kernels of any NVRTC build are accepted. ATTNC_NO_COMPILE=1 has the same effect.
  bool noCompile = false;
  /// Whether to use stored choices of tune() and tuneTraining() in prepare(), settle(), prepareTraining() and
  /// settleTraining(). Default: true unless ATTNC_TUNED is 0.
  std::optional<bool> tuned = {};
  /// Name of the device ("NVIDIA H200") whose stored choices are used. Empty: the device of the current context. If
  /// settle() is given an arch, it looks at no device and needs this name to use stored choices.
  std::string tunedDevice = {};
  /// Most instructions of a mod in a kernel, estimated before NVRTC sees them. A larger mod is an error (mod), since
  /// NVRTC cannot be stopped and 1 kB of mod can keep it busy for minutes. Each place where a capture gets a gradient
  /// counts 1500. Source text is generated for at most a million. 0: ATTNC_MAX_WORK, else kDefaultMaxWork.
  int64_t maxWork = 0;
  /// Receives events of the compiler and its cache, as ATTNC_LOG does. It also receives, once each, why a cache
  /// directory is unused and which environment variables are invalid. Threads that call the Compiler call it, possibly
  /// several at once. It must not throw or call the Compiler.
  LogSink log = {};
};

/// Turns mods into kernels. It is thread-safe. Make one per process and keep it, since it holds the in-memory cache,
/// which only grows. Copies share the cache.
///
/// Functions that compile read and write the cache directory, and write to ATTNC_DUMP_DIR and ATTNC_LOG if these are
/// set. The GPU is that of the calling thread's current CUDA context; attnc creates no context.
class Compiler {
public:
  /// Reads the environment. Opens neither libraries nor the cache directory.
  explicit Compiler(CompilerOptions options = {});

  /// Settles family, layout, block mask and workspace for operands like these. Compiles the kernels, or takes them from
  /// memory or disk, and loads them into the current CUDA context. Takes half a second at first and microseconds later.
  /// Needs libnvrtc only on a cache miss.
  ///
  /// Reads shapes, dtypes, strides and alignment of `operands`; null addresses count as aligned. If a block mask is
  /// given, launches walk it. Captures may be missing; given ones are checked. `outputs` hold `out` and all others that
  /// launches will ask for.
  ///
  /// Family Grid is chosen if the operands show that all tokens lie on the mod's grids. The mod declares these, or
  /// takes positions apart by them. On Hopper, tokens outside the grids are allowed if the mod expects them.
  ///
  /// Errors (environment): those of settle(); no GPU or no context; NVRTC missing if it is needed.
  Expected<Prepared> prepare(const Mod& mod, const Operands& operands, const Outputs& outputs,
                             const PrepareOptions& options = {}) const;

  /// Returns what prepare() would choose, and why. Compiles nothing, and needs no GPU if `options.arch` is given.
  ///
  /// Errors (environment): operands that fit neither each other nor the mod, by name; no `out`; options that no kernel
  /// serves. Also a requested family that does not serve the options or the layout.
  Expected<Preparation> settle(const Mod& mod, const Operands& operands, const Outputs& outputs,
                               const PrepareOptions& options = {}) const;

  /// Prepares a forward and a backward pass, each with its own family. Otherwise as prepare(). `outputs` are those of
  /// the forward pass; `operands` repeat its out and lse. All addresses may be null, including those of gradients.
  /// Captures with tensors in `gradients` get gradients; all captures must then be given.
  Expected<Prepared> prepareTraining(const Mod& mod, const BackwardOperands& operands, const Outputs& outputs,
                                     const BackwardOutputs& gradients, const PrepareOptions& options = {}) const;

  /// Returns what prepareTraining() would choose, and why. Otherwise as settle().
  Expected<Preparation> settleTraining(const Mod& mod, const BackwardOperands& operands, const Outputs& outputs,
                                       const BackwardOutputs& gradients, const PrepareOptions& options = {}) const;

  /// Measures which tile is fastest for operands like these. Stores the choice in the cache directory, for all
  /// processes. Later prepare() calls use it for this device, mod, options and class of problems. The choice is only
  /// advice; other versions of attnc ignore it.
  ///
  /// A class of problems shares q heads per KV head, head dims, and lengths of the same power of two. For decode
  /// kernels it also shares the KV heads of all batches; for grids, the extents.
  ///
  /// Compiles the tiles of the family that prepare() takes (Plan::tiles()). Launches each many times on `stream`, for
  /// some seconds, and times them with events. The model's tile stays unless another is more than 2 % faster and gives
  /// equal results up to rounding. Tiles that do not compile are skipped.
  ///
  /// Operands and outputs are those of a launch, in device memory; outputs are overwritten. The options must not name a
  /// tile. Allocates device memory: a workspace for each tile, or one shared by the tiles of a backward kernel. Do not
  /// call it while `stream` is captured.
  ///
  /// Errors: those of prepare() and of Prepared::launch() with the model's tile; an empty problem; whatever the driver
  /// refuses.
  Expected<Tuning> tune(const Mod& mod, const Operands& operands, const Outputs& outputs,
                        const PrepareOptions& options = {}, Stream stream = nullptr) const;

  /// Tunes for training: first the forward kernel, then the backward kernel behind a forward launch. A pass with a tile
  /// in the options keeps it and is not measured. Otherwise as tune().
  ///
  /// All tensors are those of Prepared::launch() and launchBackward(), including gradients of q, k and v. These must be
  /// equal for all tiles, up to rounding. Gradients of captures are summed in any order, so they are not compared.
  ///
  /// Errors: those of tune(); tiles given for both passes; missing gradients of q, k and v.
  Expected<Tuning> tuneTraining(const Mod& mod, const BackwardOperands& operands, const Outputs& outputs,
                                const BackwardOutputs& gradients, const PrepareOptions& options = {},
                                Stream stream = nullptr) const;

  /// Chooses the kernel for these options. Needs no NVRTC, no disk, and no GPU if `options.arch` is given. Errors
  /// (environment): options that no kernel serves; an unknown arch; pins that the mod does not have. Errors (mod): more
  /// work than CompilerOptions::maxWork.
  Expected<Plan> plan(const Mod& mod, const KernelOptions& options) const;

  /// Compiles all launches, or takes them from memory or disk. Needs libnvrtc on a cache miss, and no GPU. Equal
  /// requests of several threads and processes compile once; the others wait. Cache failures never fail the call.
  /// Errors (environment): no NVRTC 13. Errors (mod): more work than CompilerOptions::maxWork. Errors (internal): code
  /// that NVRTC refuses.
  Expected<CompiledStages> compile(const Plan& plan) const;

  /// Returns a pack: the bytes of one file with all launches of these kernels, which compile() provides.
  /// CompilerOptions::packs and addPack() open it on machines without NVRTC or a cache. Preparation::kernels() lists
  /// the kernels that operands need. Where launches choose a tile by the width of their window, the pack has both
  /// tiles. With kernels of Feature::Fp8Kv, it has those of Quantiser for their head dims up to 256 and their dtype.
  ///
  /// Write the bytes unchanged to a file of any name, preferably by rename. Needs no GPU. Errors: those of compile()
  /// for the first kernel that fails.
  Expected<std::string> pack(const std::vector<Plan>& plans) const;

  /// Opens a pack, to be searched after the compiler's other packs. Whoever can write the file decides what code runs
  /// on the GPU. The file stays open, and may be replaced by rename. Errors (environment): it cannot be opened, is
  /// damaged, or was made by another version of attnc.
  Status addPack(const std::string& path);

  /// Compiles a forward or decode kernel as compile() does, and loads it into the current CUDA context. From memory
  /// this takes microseconds. Errors: those of compile(); a plan of another kind; no GPU or no context.
  Expected<ForwardKernel> loadForward(const Plan& plan) const;
  /// Compiles and loads backward kernels, as loadForward().
  Expected<BackwardKernel> loadBackward(const Plan& plan) const;

private:
  friend struct CompilerAccess; // src/api: loads kernels that build block masks
  struct Impl;
  std::shared_ptr<Impl> impl;
};

} // namespace attnc
