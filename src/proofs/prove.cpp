#include "attnc/prove.h"

#include "api/mod_impl.h"
#include "api/own_stack.h"
#include "ir/outputs.h"
#include "passes/derive.h"
#include "passes/pipeline.h"
#include "proofs/claim.h"
#include "proofs/example.h"
#include "proofs/question.h"
#include "proofs/solver.h"
#include "support/try.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <set>

namespace attnc {
namespace {

using ir::Module;
using proofs::Element;
using proofs::Launch;
using proofs::Question;
using proofs::Solver;

Expected<Module> moduleOf(const Mod& mod, const Claim& claim, llvm::ArrayRef<const Module*> assumptions) {
  if (claim.kind == Claim::Kind::EveryRowLives) {
    Module bounds = mod.module();
    ATTNC_TRY(passes::deriveForKernels(bounds, {}));
    return proofs::claimOfRows(mod.module(), &bounds, assumptions);
  }
  if (!claim.other) return Error::environment("the claim has no other mod", "set Claim::other");
  const Module& other = claim.other->module();
  if (claim.kind == Claim::Kind::SameMask || claim.kind == Claim::Kind::Same)
    return proofs::claimOfSame(mod.module(), other, claim.kind == Claim::Kind::Same, assumptions);
  return proofs::claimOf(mod.module(), other, claim.kind == Claim::Kind::Never, assumptions);
}

/// A claim on its way to an answer.
class Prover {
public:
  Prover(const Mod& mod, const Claim& claim, const ProofOptions& options)
      : mod(mod), claim(claim), options(options),
        nondecreasing(options.nondecreasing.begin(), options.nondecreasing.end()),
        isRow(claim.kind == Claim::Kind::EveryRowLives),
        end(Clock::now() + std::chrono::microseconds(int64_t(options.seconds * 1e6))) {
    for (const Mod& assumption : options.assumptions) assumptions.push_back(&assumption.module());
  }

  Expected<Proof> run() {
    ATTNC_TRY_AS(module, moduleOf(mod, claim, assumptions));
    ATTNC_TRY_AS(outcome, decide(*module, left(), isRow));
    if (outcome->answer == Outcome::Found) return refuted(*module, *outcome);
    if (outcome->answer != Outcome::None && isRow)
      for (int64_t columns = 1; columns <= kShortRows && left() > 0; ++columns) {
        ATTNC_TRY_AS(rows, proofs::claimOfShortRows(mod.module(), columns, assumptions));
        ATTNC_TRY_AS(found, decide(*rows, left() / 2, isRow));
        if (found->answer == Outcome::Found) return refuted(*rows, *found);
      }
    Proof proof;
    if (outcome->answer != Outcome::None) {
      proof.why = whyUndecided(*outcome);
      return proof;
    }
    if (!assumptions.empty() || !nondecreasing.empty()) {
      ATTNC_TRY_AS(none, proofs::claimOfNone(mod.module(), isRow, assumptions));
      ATTNC_TRY_AS(met, decide(*none, std::max(1.0, left()), false));
      if (met->answer == Outcome::None || met->answer == Outcome::Unknown) {
        const std::string none = isRow ? "nothing meets the assumptions" : "no live score meets the assumptions";
        proof.why = met->answer == Outcome::None ? none : "it holds, unless " + none + "; " + whyUndecided(*met);
        return proof;
      }
    }
    proof.answer = Proof::Answer::Proved, proof.by = outcome->by;
    return proof;
  }

private:
  using Clock = std::chrono::steady_clock;
  using Outcome = Question::Outcome;
  static constexpr int64_t kShortRows = 8;

  struct Decided {
    Outcome answer = Outcome::Unknown;
    std::string by, obstacle, missing; ///< missing: why there is no solver
    Launch launch;
    Element at;
  };

  double left() const { return std::max(0.0, std::chrono::duration<double>(end - Clock::now()).count()); }

  /// Looks for an example against a claim: in what the passes make of it, in drawn launches, then by the solver.
  /// `byRow`: an example is a row without a live score.
  Expected<Decided> decide(Module& module, double seconds, bool byRow) const {
    ATTNC_TRY(passes::runPipeline(module));
    Decided decided;
    const ir::Value root = *module.output(ir::kMask);
    if (module.isConst(root) && module.integer(root)) {
      decided.answer = Outcome::None, decided.by = "intervals";
      return decided;
    }
    const auto failureIn = [&](const Launch& drawn) {
      return byRow ? proofs::deadRowIn(module, drawn) : proofs::failureIn(module, drawn);
    };
    if (const auto at = proofs::drawFailure(module, nondecreasing, decided.launch, failureIn)) {
      decided.answer = Outcome::Found, decided.by = "examples", decided.at = *at;
      return decided;
    }
    auto solver = Solver::open(options.solver);
    if (!solver) {
      decided.missing = fmt::format("{}; {}", solver.error().message, solver.error().remedy);
      return decided;
    }
    Question question(module, nondecreasing);
    ATTNC_TRY_AS(answer, question.ask(*solver, seconds, decided.launch, decided.at,
                                      [&](const Launch& launch, const Element& at) {
                                        return byRow ? proofs::isRowDead(module, launch, at)
                                                     : proofs::isFalse(module, launch, at);
                                      }));
    decided.answer = *answer, decided.by = solver->name(), decided.obstacle = question.obstacle();
    return decided;
  }

  Proof refuted(const Module& by, const Decided& found) const {
    Proof proof;
    proof.answer = Proof::Answer::Refuted, proof.by = found.by;
    proofs::tell(by, found.launch, found.at, isRow, mod.text(), proof);
    return proof;
  }

  std::string whyUndecided(const Decided& decided) const {
    if (!decided.missing.empty()) return decided.missing;
    const std::string hard = decided.obstacle.empty() ? "" : "; hard for it: " + decided.obstacle;
    if (isRow) return "no column was found that lives in each row, and no row without one" + hard;
    if (decided.answer == Outcome::Unconfirmed)
      return "examples of Z3 fail when they are computed, or are too large for that" + hard;
    return fmt::format("Z3 found no answer in {:g} s", options.seconds) + hard;
  }

  const Mod& mod;
  const Claim& claim;
  const ProofOptions& options;
  const std::set<std::string> nondecreasing;
  const bool isRow;
  const Clock::time_point end;
  std::vector<const Module*> assumptions;
};

} // namespace

Expected<Proof> prove(const Mod& mod, const Claim& claim, const ProofOptions& options) {
  return onOwnStack([&]() -> Expected<Proof> {
    const QueryOffsets ofLaunch = options.kvLengths ? QueryOffsets::FromLengths : QueryOffsets::None;
    const passes::SequenceForm form{.lengths = options.kvLengths, .offsets = options.offsets.value_or(ofLaunch)};
    if (form.isPlain()) return Prover(mod, claim, options).run();
    Claim what = claim;
    ProofOptions how = options;
    ATTNC_TRY_AS(whole, sequencesMod(mod, form, {}));
    std::vector<Mod*> others;
    for (Mod& assumption : how.assumptions) others.push_back(&assumption);
    if (what.other) others.push_back(&*what.other);
    for (Mod* other : others) {
      ATTNC_TRY_AS(placed, sequencesMod(*other, form, {}));
      *other = *std::move(placed);
    }
    return Prover(*whole, what, how).run();
  });
}

} // namespace attnc
