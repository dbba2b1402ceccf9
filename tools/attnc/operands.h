// The operands of `attnc run`: q, k, v, what flows back and what the mod captures, from a file, from --set, or drawn at
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

/// Whose elements somebody is going to read.
enum class Elements {
  All,
  OfMask, ///< captures that mask_mod reads; all other tensors have a shape and no bytes
};

/// What launches are given where K and V lie in pages, or rows are appended to them.
struct HostCache {
  HostTensor k, v; ///< as they lie, without what is appended
  std::optional<HostTensor> pageTable, newK, newV;
};

/// Host memory, checked against each other and against the mod.
struct HostOperands {
  HostTensor q;    ///< of a ragged batch [1, H, total, D]; so are k and v
  HostTensor k, v; ///< of a cache: the rows of sequences as they are attended to, [B, HKV, KV_LEN, D]
  std::optional<HostCache> cache;
  std::optional<HostTensor> kvLengths, qOffset; ///< i32 [B], where they are given
  std::optional<HostTensor> kScale, vScale;     ///< of k and v of e4m3, where they are given: Operands::kScales
  std::optional<HostTensor> cuSeqlensQ, cuSeqlensKv; ///< i32 [B + 1], of a ragged batch; the second if it is another one
  HostTensor dOut;                              ///< with --backward: gradient of out, [B, H, Q_LEN, DV], dtype of q
  std::optional<HostTensor> dLse; ///< with --backward, where there is one: gradient of lse, f32 [B, H, Q_LEN]
  NamedTensors tensors;           ///< captured tensors, by name
  Captures captures;              ///< all captures; tensors borrowed from `tensors`
  /// With --backward: a tensor for the gradient of each capture that wants one, of the capture's shape and dtype, a
  /// scalar's f32. Without memory.
  Captures gradients;
  ProblemShape problem;
};

/// What the file of --in could give a mod that does not declare its captures: each tensor whose name could be one of
/// the text, with free extents. Empty where the file cannot be read, or comes from stdin: who reads it for good says
/// why.
std::vector<CaptureInfo> capturesInFile(const RunOptions& options);

/// Finds every operand. A capture comes from --set if that names it, else from the file, else from --pin, else, with
/// --random, from the generator. Errors: Blame::Environment naming the tensor or capture: missing, wrong dtype or
/// shape. A --set that names nothing, or whose value does not fit, throws CLI::ValidationError.
Expected<HostOperands> findOperands(const Mod& mod, const RunOptions& options, Elements elements = Elements::All);

/// The same without q, k and v, for Elements::OfMask: what the mod captures in a problem of this shape. The file is not
/// read.
Expected<HostOperands> drawCaptures(const Mod& mod, const RunOptions& options, const ProblemShape& problem);

/// The captures that mask_mod reads.
std::set<std::string> capturesOfMask(const Mod& mod);

/// What findCaptures() is to find.
struct CapturesAsked {
  std::optional<ProblemShape> shape; ///< of the problem; else that of the file's q and k, or of its captures
  ProblemShape fallback;             ///< where none of these is there
  Elements elements = Elements::All;
  bool mayDraw = false;              ///< captures that nothing gives; else a missing one that is needed is an error
  bool withScores = false;           ///< the elements of q and k, where the file has them
};

/// Captures without v and what flows back, as `mask` and `probe` take them: from --set, --in, --pin. q and k are empty
/// where the file has none. Errors as findOperands().
Expected<HostOperands> findCaptures(const Mod& mod, const RunOptions& options, const CapturesAsked& asked);

/// The shape of lse: [B, H, Q_LEN].
std::vector<int64_t> rowsOf(const HostOperands& operands);

/// HostOperands::gradients. Throws CLI::ValidationError for a name that is no captured float.
Expected<Captures> gradientsAsked(const Mod& mod, const GradientOptions& asked, const HostOperands& operands);

} // namespace attnc::cli
