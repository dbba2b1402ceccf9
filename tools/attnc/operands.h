// The operands of `attnc run`: q, k, v, incoming gradients and the mod's captures, from a file, from --set, or drawn at
// random.
#pragma once

#include "run_options.h"
#include "safetensors.h"

#include "attnc/mod.h"
#include "attnc/operands.h"

#include <optional>
#include <set>
#include <string>

namespace attnc::cli {

/// Which tensors need their elements.
enum class Elements {
  All,
  OfMask, ///< captures that mask_mod reads; other tensors have a shape and no bytes
};

/// The cache of launches whose K and V lie in pages, or to which rows are appended.
struct HostCache {
  HostTensor k, v; ///< K and V as stored, without the appended rows
  std::optional<HostTensor> pageTable, newK, newV;
};

/// Operands in host memory, checked against each other and against the mod.
struct HostOperands {
  HostTensor q;    ///< of a ragged batch [1, H, total, D]; the same for k and v
  HostTensor k, v; ///< of a cache: the rows that are attended to, [B, HKV, KV_LEN, D]
  std::optional<HostCache> cache;
  std::optional<HostTensor> kvLengths, qOffset; ///< i32 [B], if given
  std::optional<HostTensor> kScale, vScale;     ///< of e4m3 k and v, if given: Operands::kScales
  std::optional<HostTensor> cuSeqlensQ, cuSeqlensKv; ///< i32 [B + 1], of a ragged batch; the second only if it differs
  HostTensor dOut;                              ///< with --backward: gradient of out, [B, H, Q_LEN, DV], dtype of q
  std::optional<HostTensor> dLse; ///< with --backward, if given: gradient of lse, f32 [B, H, Q_LEN]
  NamedTensors tensors;           ///< captured tensors, by name
  Captures captures;              ///< all captures; their tensors are borrowed from `tensors`
  /// With --backward: a tensor for the gradient of each capture that wants one, with the capture's shape and dtype; f32
  /// for a scalar. Has no memory.
  Captures gradients;
  ProblemShape problem;
};

/// Returns what the file of --in could provide to a mod that does not declare its captures: each tensor whose name is a
/// valid name, with free extents. Empty if the file cannot be read, or comes from stdin: the actual read reports why.
std::vector<CaptureInfo> capturesInFile(const RunOptions& options);

/// Finds every operand. A capture comes from the first of: --set, the file, --pin, and with --random the generator.
/// Errors: Blame::Environment naming the tensor or capture: missing, wrong dtype or shape. A --set that names nothing,
/// or whose value does not fit, throws CLI::ValidationError.
Expected<HostOperands> findOperands(const Mod& mod, const RunOptions& options, Elements elements = Elements::All);

/// Finds the captures without q, k and v, for Elements::OfMask, in a problem of this shape. Does not read the file.
Expected<HostOperands> drawCaptures(const Mod& mod, const RunOptions& options, const ProblemShape& problem);

/// Returns the captures that mask_mod reads.
std::set<std::string> capturesOfMask(const Mod& mod);

/// What findCaptures() should find.
struct CapturesAsked {
  std::optional<ProblemShape> shape; ///< shape of the problem. Default: that of the file's q and k, or of its captures
  ProblemShape fallback;             ///< used if the file has none of these
  Elements elements = Elements::All;
  bool mayDraw = false;              ///< whether to draw missing captures; else a missing one is an error
  bool withScores = false;           ///< whether to read the elements of q and k, if the file has them
};

/// Finds captures for `mask` and `probe`, without v and incoming gradients: from --set, --in, --pin. q and k are empty
/// if the file lacks them. Errors as findOperands().
Expected<HostOperands> findCaptures(const Mod& mod, const RunOptions& options, const CapturesAsked& asked);

/// Returns the shape of lse: [B, H, Q_LEN].
std::vector<int64_t> rowsOf(const HostOperands& operands);

/// Returns the ragged batch of operands with cumulative lengths, as views of them; nullopt for others.
std::optional<RaggedBatch> raggedOf(const HostOperands& operands);

/// Returns HostOperands::gradients. Throws CLI::ValidationError for a name that is not a captured float.
Expected<Captures> gradientsAsked(const Mod& mod, const GradientOptions& asked, const HostOperands& operands);

} // namespace attnc::cli
