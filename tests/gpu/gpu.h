// Helpers of the GPU tests: the device, random problems, and runs of a kernel and of the fp64 reference.
#pragma once

#include "attnc/attnc.h"
#include "helpers/take.h"
#include "helpers/test_case.h"
#include "tools/attnc/problem/safetensors.h"
#include "tools/device/device.h"

#include <catch2/catch.hpp>

#include <map>
#include <string>
#include <vector>

namespace attnc::gputest {

/// The GPU, a stream on it, and a compiler. One per test process.
struct Gpu {
  device::Context context;
  device::Stream stream;
  Compiler compiler;
};

/// Returns the GPU, or null, with the reason in `reason`.
Gpu* gpu(std::string* reason = nullptr);

// Skips the test if there is no GPU, and says so: CTest looks for the word SKIPPED.
#define ATTNC_NEED_GPU()                                                                                               \
  do {                                                                                                                 \
    std::string reason;                                                                                                \
    if (!attnc::gputest::gpu(&reason)) {                                                                               \
      WARN("SKIPPED: " << reason);                                                                                     \
      return;                                                                                                          \
    }                                                                                                                  \
  } while (false)

#define GPU_TEST_CASE(...) ATTNC_TEST_CASE(ATTNC_NEED_GPU(), __VA_ARGS__)

/// One attention problem.
struct Problem {
  ProblemShape shape;
  int headDim = 64, headDimV = 64;
  DType dtype = DType::BF16;
  bool kvBatchOne = false; ///< whether k and v have batch 1
  bool headsLast = false;  ///< whether the memory order is [B, S, H, D] instead of [B, H, S, D]
  int64_t rowPadding = 0;  ///< elements between rows beyond head_dim; an odd number makes rows unaligned
  uint64_t seed = 1;
  bool vInK = false; ///< whether v is k's first columns; launches then get a view of k
  std::string text() const;
};

/// The operands of a problem and the captures of a mod in host memory, drawn at random.
struct HostOperands {
  cli::HostTensor q, k, v;
  cli::NamedTensors tensors;
  Captures captures;                                        ///< views into `tensors`
  std::vector<int32_t> kvLengths, qOffsets;                 ///< of each sequence; empty: not given
  std::vector<int32_t> cuSeqlensQ;                          ///< of a ragged batch; empty: none
  int64_t maxQLen = 0;                                      ///< of a ragged batch, as Operands::maxQLen
  std::optional<cli::HostTensor> qScales, kScales, vScales; ///< of q, k and v of e4m3
  std::optional<cli::HostTensor> newK, newV;                ///< [B, HKV, Q_LEN, D]; the launch appends them
  std::optional<cli::HostTensor> pageTable; ///< i32 [B, N]; k and v are then pools [pages, HKV, page_size, D]
};
HostOperands draw(const Mod& mod, const Problem& problem, const std::map<std::string, int64_t>& scalars = {});

/// Returns a copy of the first columns of a tensor of rank 4.
cli::HostTensor firstColumns(const cli::HostTensor& of, int64_t columns);

/// Results as doubles, dense: out [B, H, Q_LEN, DV], lse and rowMax [B, H, Q_LEN]; k and v as the launch left them.
struct Outcome {
  std::vector<double> out, lse, rowMax;
  std::vector<double> k, v; ///< empty if nothing was appended
};

/// Captures with their tensors in device memory, strides and alignment to 16 bytes as in host memory. Precondition: no
/// stride is negative, and a tensor that does not begin at 16 bytes is part of one that does.
struct DeviceCaptures {
  std::vector<device::Buffer> buffers;
  Captures captures;
};
DeviceCaptures uploadCaptures(const Captures& host);

struct RunOptions {
  Family family = Family::Sm80; ///< Auto: as prepare() settles it
  bool blockMask = false;       ///< build one of these blocks on the GPU, and pass it
  int qBlock = 128, kvBlock = 128;
  const BlockMask* mask = nullptr; ///< lists to pass, unchanged
  bool rowMax = true;
  bool tf32 = false;
  float lowRankError = 0;
  std::optional<float> scale;
  bool workspace = true;               ///< pass the workspace that the kernel needs
  std::optional<QueryOffsets> offsets; ///< as PrepareOptions::offsets
  std::optional<bool> decode;          ///< as PrepareOptions::decode
  int launches = 1;                    ///< in one workspace, one after another
  std::string arch = {};               ///< arch to compile for; empty: that of the GPU
  std::string tile = {};               ///< as PrepareOptions::tile
  bool preparesMask = false;           ///< let prepare() build a block mask if the kernel gains from one
};

/// Uploads, launches, waits, downloads. Fills outputs with NaN before the launch.
Outcome runKernel(const Mod& mod, const Problem& problem, const HostOperands& operands, const RunOptions& options);

/// Runs the fp64 reference on the CPU. For a ragged batch, k and v are [B, HKV, KV_LEN, D]: what lies in pages.
Outcome runReference(const Mod& mod, const Problem& problem, const HostOperands& operands,
                     std::optional<float> scale = {}, std::optional<QueryOffsets> offsets = {});

/// Returns what a library mod's own arithmetic may add to the error of a score. tanh.approx errs by 2^-11 relative (PTX
/// ISA), and a softcap multiplies that by its cap, drawn below 1.5. ALiBi's row term may be taken out of the scores and
/// put back at the end of the row: each is then a difference of terms of up to a slope, drawn below 2.5, times a
/// distance. Kernels of bf16 may round products of a low-rank term by 2^-16 (dsl/SPEC.md); their sizes add up to 8
/// here.
double scoreErrorOf(const std::string& mod, const ProblemShape& shape, DType dtype = DType::BF16);

/// Gradients of q, k and v as doubles, dense.
struct Gradients {
  std::vector<double> dQ, dK, dV;
  double scoreSlope = 1; ///< from the reference
};

/// The incoming gradients of out and lse.
struct ResultGradients {
  cli::HostTensor dOut;
  std::optional<cli::HostTensor> dLse;
};
ResultGradients drawGradients(const Problem& problem, bool withLse);

struct BackwardRun {
  Family family = Family::Sm80;
  std::optional<float> scale = {};
  const BlockMask* mask = nullptr; ///< for both launches
  bool deterministic = false;
  float lowRankError = 0;
  bool forgetsRows = false; ///< empty the row lists before the backward launch; not with Family::Auto
  std::string arch = {};    ///< arch to compile for; empty: that of the GPU
  std::string tile = {};    ///< tile of the backward kernel, as KernelOptions::tile
};

/// Runs a forward launch, then a backward one. Fills gradients and workspace with NaN before. Family Auto: as
/// prepareTraining() settles it, which builds its own mask if it wants one.
Gradients runBackward(const Mod& mod, const Problem& problem, const HostOperands& operands,
                      const ResultGradients& given, const BackwardRun& run);

/// Runs the fp64 reference on the CPU.
Gradients runReferenceBackward(const Mod& mod, const HostOperands& operands, const ResultGradients& given,
                               std::optional<float> scale = {}, const BlockMask* mask = nullptr);

/// Fails unless gradients agree within the error bound of the arithmetic (gradient_tolerance.h).
void checkGradients(const Gradients& actual, const Gradients& expected, const Problem& problem);

/// Fails unless `actual` equals `expected` within the error bound of the arithmetic (derived in the .cpp).
/// `scoreError`: error that approximations in the mod's own functions may add to a score.
void checkClose(const Outcome& actual, const Outcome& expected, const Problem& problem, bool tf32 = false,
                double scoreError = 0);

/// Returns the families that serve a problem on this device: naive, sm80 and, on Hopper with aligned rows, sm90.
std::vector<Family> familiesFor(const Mod& mod, const Problem& problem, RunOptions options = {});

/// Returns a dense floating-point tensor's elements.
std::vector<double> toDoubles(const cli::HostTensor& tensor);

/// Returns the names of the mods of the library, dsl/mods, in order: those that go everywhere (support/library.h), or
/// the others.
std::vector<std::string> libraryNames(bool everywhere = true);
/// Returns a mod of the library, by name.
Mod libraryMod(const std::string& name, std::map<std::string, std::string> defines = {});

/// Compiles in parallel the kernels that a test is about to run, so that it need not wait for one after another.
void compileAhead(const std::vector<std::pair<Mod, KernelOptions>>& jobs);
KernelOptions kernelOptions(const Mod& mod, const Problem& problem, const RunOptions& options);

} // namespace attnc::gputest
