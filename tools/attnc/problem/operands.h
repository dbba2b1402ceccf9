// The operands of `attnc run`: q, k, v, incoming gradients and the mod's captures, from a file, from --set, or drawn at
// random.
#pragma once

#include "problem/host_operands.h"
#include "problem/problem_options.h"

#include "attnc/mod.h"
#include "attnc/prepared.h"

#include <optional>
#include <vector>

namespace attnc::cli {

/// Reads the mod. A capture that it does not declare may be a tensor of the file of --in, with free extents, if its
/// name is a valid one. Throws CLI::Error as ModOptions::load().
Expected<Mod> loadMod(const ProblemOptions& options);

/// Finds every operand. A capture comes from the first of: --set, the file, --pin, and with --random the generator.
/// Errors: Blame::Environment naming the tensor or capture: missing, wrong dtype or shape. A --set that names nothing,
/// or whose value does not fit, throws CLI::ValidationError.
Expected<HostOperands> findOperands(const Mod& mod, const ProblemOptions& options, Elements elements = Elements::All);

/// What findCaptures() should find.
struct CapturesAsked {
  std::optional<ProblemShape> shape; ///< shape of the problem. Default: that of the file's q and k, or of its captures
  ProblemShape fallback;             ///< used if the file has none of these
  Elements elements = Elements::All;
  bool withScores = false; ///< whether to read the elements of q and k, if the file has them
};

/// Finds captures for `mask` and `probe`, without v and incoming gradients: from --set, --in, --pin, else drawn. A file
/// must have all that are needed. q and k are empty if it lacks them. Errors as findOperands().
Expected<HostOperands> findCaptures(const Mod& mod, const ProblemOptions& options, const CapturesAsked& asked);

/// Returns what a launch takes, as views of these operands, without captures. K and V of a cache are those stored.
Operands viewsOf(const HostOperands& operands);

/// Returns the view of the first columns of a tensor, as many as `like` has.
TensorView firstColumns(TensorView of, const TensorView& like);

/// Returns the first arch whose kernels take operands of these dtypes and head dims. Precondition: they have rank 4.
std::string archThatTakes(const HostOperands& operands);

/// Returns the shape of lse: [B, H, Q_LEN].
std::vector<int64_t> rowsOf(const HostOperands& operands);

/// Returns the shape of an output of the mod, or of its gradient. `q` and `k` are laid out as for HostTensors.
std::vector<int64_t> outputShape(const CaptureInfo& output, const ProblemShape& problem, const TensorView& q,
                                 const TensorView& k);
/// Returns whether captures hold gradients of outputs.
bool haveOutputGradients(const Mod& mod, const Captures& captures);
/// Returns HostOperands::gradients. Throws CLI::ValidationError for a name that is not a captured float.
Expected<Captures> gradientsAsked(const Mod& mod, const GradientOptions& asked, const HostOperands& operands);

} // namespace attnc::cli
