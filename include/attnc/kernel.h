// Kernels: mod + options in, a loaded CUDA kernel out.
#pragma once

#include "attnc/block_mask.h"
#include "attnc/error.h"
#include "attnc/log.h"
#include "attnc/mod.h"
#include "attnc/tensor.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

struct CUstream_st; // as in cuda.h; cudaStream_t is the same type

namespace attnc {

using Stream = CUstream_st*;

enum class KernelKind { Forward, BlockMask };
enum class Family { Auto, Naive, Sm80, Sm90 };

/// What is static in a kernel: a change of any of these is another kernel. Lengths, batch, heads, strides, scale and the
/// captures' values are given at launch and never compile.
struct KernelOptions {
  KernelKind kind = KernelKind::Forward;
  Family family = Family::Auto; ///< Auto: the catalogue picks for the arch; for a layout, Compiler::forLayout
  std::string arch;             ///< "sm_80", "sm_90a", ...; empty: that of the current CUDA context's device
  DType dtype = DType::BF16;    ///< of q, k, v, out: BF16, F16, F32
  int headDim = 128;            ///< of q and k: a multiple of 8, 8..256
  int headDimV = 0;             ///< of v and out; 0: headDim
  bool blockSparse = false;     ///< launches pass a block mask
  int maskQBlock = 128;         ///< with blockSparse: block size of the masks to come
  int maskKvBlock = 128;
  bool rowMax = false; ///< launches may ask for the row maximum
  bool tf32 = false;   ///< F32: one TF32 product instead of three (about 1e-3 instead of 1e-6 relative error)
  std::map<std::string, int64_t> pins; ///< "KV_LEN" -> 8192: folded into the kernel, and then part of the key
};

/// Generated text of one kernel: what NVRTC is given.
struct KernelSource {
  std::string entry;               ///< name of the __global__ function
  std::string templateName;        ///< e.g. "forward_sm80.cu"
  std::string text;                ///< the template
  std::vector<std::pair<std::string, std::string>> headers; ///< name, text: the templates and the two generated ones
  std::vector<std::string> options;
  std::string arch;
  Family family = Family::Naive;
  /// One self-contained .cu: the headers pasted into the template once each, in order.
  std::string flattened() const;
};

/// A compiled kernel, not yet on a device.
struct CompiledKernel {
  std::vector<char> cubin;
  std::string ptx;
  std::string log; ///< of NVRTC and ptxas
  int registers = 0;
  int spillBytes = 0; ///< stores and loads, all functions
  int64_t staticSharedBytes = 0;
  int64_t dynamicSharedBytes = 0; ///< what the launch asks for
  std::vector<std::string> advisories; ///< of ptxas, C7504 and C7510..C7520: code that is silently slow
  bool fromDisk = false; ///< the call that gave this read it from the disk cache
  double compileMs = 0;  ///< what compiling took that call; 0 when it came from the cache, in memory or on disk
};

/// Operands of a forward launch, all device memory. The naive and sm80 families take any address and any strides over
/// batch, heads and rows: unaligned, 0, negative. What sm90 takes: Compiler::forLayout.
struct ForwardArgs {
  TensorView q;   ///< [B, H, Q_LEN, D], last stride 1
  TensorView k;   ///< [B or 1, HKV, KV_LEN, D], last stride 1; H a multiple of HKV
  TensorView v;   ///< [B or 1, HKV, KV_LEN, DV], last stride 1
  TensorView out; ///< [B, H, Q_LEN, DV], last stride 1; written
  std::optional<TensorView> lse;    ///< f32 [B, H, Q_LEN], dense; natural log; -inf for a fully masked row
  /// f32 [B, H, Q_LEN], dense; natural units; -inf for a fully masked row. Needs KernelOptions::rowMax.
  std::optional<TensorView> rowMax;
  std::optional<float> scale;       ///< default 1 / sqrt(D)
  const Captures* captures = nullptr;
  const BlockMaskView* blockMask = nullptr; ///< required iff KernelOptions::blockSparse; device memory
};

/// A kernel loaded on one device. Immutable; any number of threads may launch it on any streams of that device.
class Kernel {
public:
  /// Enqueues the kernel. Checks shapes, dtypes, strides and captures first and launches nothing on an error
  /// (Blame::Environment naming the tensor); a layout that its family does not take is one, for a launch never picks
  /// another kernel. Allocates no device memory, synchronises nothing, compiles nothing; may be captured into a CUDA
  /// graph. The operands must stay valid until the stream has passed this launch.
  /// Empty problems (an extent 0) are legal: kv_len 0 gives out 0 and lse -inf.
  Status forward(const ForwardArgs& args, void* workspace, Stream stream) const;

  /// Bytes of device memory that forward() can use as workspace for these operands; 0: none. The caller zeroes it once;
  /// a launch leaves it zero, and two launches that may overlap need one each. Without it (null) the kernel runs as
  /// well, only its work is dealt less evenly.
  size_t workspaceBytes(const ForwardArgs& args) const;

  /// For KernelKind::BlockMask: fills the lists of `mask` (device memory) by evaluating mask_mod; captures in device
  /// memory. Asynchronous, like forward().
  Status buildBlockMask(const BlockMaskView& mask, const ProblemShape& problem, const Captures& captures,
                        Stream stream) const;

  const CompiledKernel& compiled() const;
  const KernelOptions& options() const; ///< with family and arch as chosen

private:
  friend class Compiler;
  struct Impl;
  explicit Kernel(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl;
};

struct CompilerOptions {
  enum class CacheMode { ReadWrite, ReadOnly, Off };
  std::string cacheDirectory;                  ///< empty: ATTNC_CACHE_DIR, else XDG_CACHE_HOME/attnc, else ~/.cache/attnc
  std::optional<CacheMode> cacheMode;          ///< unset: ATTNC_CACHE_MODE, else ReadWrite
  std::string nvrtcPath;                       ///< empty: ATTNC_NVRTC, else the usual places
  /// Is told what the compiler and its cache do, and, once each, why a cache directory is not used and which variables
  /// of the environment make no sense. ATTNC_LOG gets the same lines. Called by the threads that call the Compiler,
  /// perhaps several at once; it must not throw, nor call the Compiler.
  LogSink log;
};

/// Options that serve operands of some layout.
struct LayoutChoice {
  KernelOptions options;  ///< as asked, but for family Sm80 where a layout rules Sm90 out
  std::string whyNotSm90; ///< the tensor whose layout did, and what of it; empty where none did
};

/// Turns mods into kernels. Thread-safe; make one per process and keep it: it holds the in-memory cache.
class Compiler {
public:
  explicit Compiler(CompilerOptions options = {});

  /// The text NVRTC would be given. Needs no GPU, no NVRTC and no disk.
  Expected<KernelSource> source(const Mod& mod, const KernelOptions& options) const;

  /// Compiles, or takes from memory or disk. Needs libnvrtc on a miss, no GPU if `options.arch` is given.
  /// Equal requests of several threads and processes compile once. No failure of the cache fails the call.
  Expected<std::shared_ptr<const CompiledKernel>> compile(const Mod& mod, const KernelOptions& options) const;

  /// Whether launches of this kernel gain from a block mask: the mod masks something, and the kernel that would be chosen
  /// cannot bound its loops by itself (the sm90 family can for causal, window, prefix and the like). `blockSparse` of the
  /// options is ignored, their pins are not.
  Expected<bool> wantsBlockMask(const Mod& mod, KernelOptions options) const;

  /// The options for launches with operands laid out like those of `layout`: ask with them for wantsBlockMask(), then
  /// load(). Where the catalogue would pick Sm90 and the copy engine (TMA) cannot describe the layout, family is Sm80;
  /// else the options are those given.
  /// Sm90 takes q, k, v and out at multiples of 16 bytes, and strides over batch, heads and rows that are multiples of
  /// 16 bytes, above 0 and below 2^40 bytes; those over the batch may be 0. Strides along an extent of 1, or of an empty
  /// tensor, do not matter.
  /// Only shapes, dtypes, strides and alignment of the four tensors count; null is aligned. Needs no GPU if
  /// `options.arch` is given. Errors (environment): tensors that fit neither the options nor each other, by name; a
  /// layout that Sm90 does not take where Sm90 is asked for; options that no kernel serves.
  Expected<LayoutChoice> forLayout(const Mod& mod, KernelOptions options, const ForwardArgs& layout) const;

  /// compile(), then load into the current CUDA context. From memory this costs microseconds.
  Expected<Kernel> load(const Mod& mod, const KernelOptions& options) const;

private:
  struct Impl;
  std::shared_ptr<Impl> impl;
};

} // namespace attnc
