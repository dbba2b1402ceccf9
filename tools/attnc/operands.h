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

/// The tensors of Operands in host memory, with its names of members. For a cache, k and v are the rows that are
/// attended to, [B, HKV, KV_LEN, D]. For a ragged batch, q, k and v are [1, heads, total, D].
struct HostTensors {
#define ATTNC_TENSOR(member, name) HostTensor member;
#define ATTNC_OPTIONAL(member, name, feature) std::optional<HostTensor> member;
#include "attnc/operands.def"
};

/// K and V as stored, without the appended rows: in pages, or with room for new rows.
struct HostCache {
  HostTensor k, v;
};

/// Operands in host memory, checked against each other and against the mod.
struct HostOperands : HostTensors {
  std::optional<HostCache> cache; ///< set if they have pages or new rows
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

/// Returns what a launch takes, as views of these operands, without captures. K and V of a cache are those stored.
Operands viewsOf(const HostOperands& operands);

/// Returns the shape of lse: [B, H, Q_LEN].
std::vector<int64_t> rowsOf(const HostOperands& operands);

/// Returns HostOperands::gradients. Throws CLI::ValidationError for a name that is not a captured float.
Expected<Captures> gradientsAsked(const Mod& mod, const GradientOptions& asked, const HostOperands& operands);

} // namespace attnc::cli
