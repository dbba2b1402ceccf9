#include "attnc/prove.h"

#include "api/own_stack.h"
#include "ir/outputs.h"
#include "passes/derive.h"
#include "passes/pipeline.h"
#include "proofs/claim.h"
#include "proofs/example.h"
#include "proofs/question.h"
#include "proofs/solver.h"
#include "support/try.h"

#include <fmt/format.h>

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

Expected<Proof> proveHere(const Mod& mod, const Claim& claim, const ProofOptions& options) {
  std::vector<const Module*> assumptions;
  for (const Mod& assumption : options.assumptions) assumptions.push_back(&assumption.module());
  const std::set<std::string> nondecreasing(options.nondecreasing.begin(), options.nondecreasing.end());
  const bool isRow = claim.kind == Claim::Kind::EveryRowLives;
  ATTNC_TRY_AS(module, moduleOf(mod, claim, assumptions));
  ATTNC_TRY(passes::runPipeline(*module));
  Proof proof;
  const ir::Value root = *module->output(ir::kMask);
  if (module->isConst(root) && module->integer(root)) {
    proof.answer = Proof::Answer::Proved, proof.by = "intervals";
    return proof;
  }
  Launch launch;
  const auto failureIn = [&](const Launch& drawn) {
    return isRow ? proofs::deadRowIn(*module, drawn) : proofs::failureIn(*module, drawn);
  };
  const auto refuted = [&](const Module& by, const Element& at, std::string how) {
    proof.answer = Proof::Answer::Refuted, proof.by = std::move(how);
    proofs::tell(by, launch, at, isRow, proof);
    return proof;
  };
  if (const auto at = proofs::drawFailure(*module, nondecreasing, launch, failureIn))
    return refuted(*module, *at, "examples");

  std::string obstacle;
  const auto failsAt = [&](const Module& of, const Launch& found, const Element& at) {
    return isRow ? proofs::isRowDead(of, found, at) : proofs::isFalse(of, found, at);
  };
  const auto ask = [&](const Module& of, double seconds) -> Expected<bool> { // whether the proof is finished
    auto solver = Solver::open(options.solver);
    if (!solver) {
      proof.why = fmt::format("{}; {}", solver.error().message, solver.error().remedy);
      return true;
    }
    Question question(of, nondecreasing);
    Element at;
    ATTNC_TRY_AS(answer, question.ask(*solver, seconds, launch, at, [&](const Launch& found, const Element& where) {
      return failsAt(of, found, where);
    }));
    if (*answer && **answer) return refuted(of, at, solver->name()), true;
    obstacle = question.obstacle();
    if (!*answer) return false;
    proof.answer = Proof::Answer::Proved, proof.by = solver->name();
    return true;
  };
  ATTNC_TRY_AS(isFinished, ask(*module, options.seconds));
  if (*isFinished) return proof;
  for (int64_t columns = 1; isRow && columns <= 8; ++columns) {
    ATTNC_TRY_AS(rows, proofs::claimOfShortRows(mod.module(), columns, assumptions));
    ATTNC_TRY(passes::runPipeline(*rows));
    ATTNC_TRY_AS(isRefuted, ask(*rows, options.seconds / 8));
    if (*isRefuted && proof.answer != Proof::Answer::Proved) return proof;
    proof = {};
  }
  proof.why = isRow ? "no column was found that lives in each row, and no row without one"
                    : fmt::format("Z3 found no answer in {:g} s", options.seconds);
  if (!obstacle.empty()) proof.why += "; hard for it: " + obstacle;
  return proof;
}

} // namespace

Expected<Proof> prove(const Mod& mod, const Claim& claim, const ProofOptions& options) {
  return onOwnStack([&] { return proveHere(mod, claim, options); });
}

} // namespace attnc
