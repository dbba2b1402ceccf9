// One claim in the solver.
#pragma once

#include "proofs/example.h"
#include "proofs/script.h"
#include "proofs/solver.h"

#include <functional>
#include <optional>
#include <set>
#include <string>

namespace attnc::proofs {

class Question {
public:
  /// Whether a claim fails for an element of a launch.
  using Fails = std::function<bool(const Launch&, const Element&)>;

  /// Both arguments must outlive this object. `claim`: a verified module whose mask is the claim.
  Question(const ir::Module& claim, const std::set<std::string>& nondecreasing)
      : claim(claim), nondecreasing(nondecreasing), script(scriptOf(claim, nondecreasing)) {}

  /// Asks a new solver for an example against the claim, small extents first, which `fails` confirms. Returns whether
  /// one was found; nullopt if the solver cannot say in this time, or nothing was confirmed.
  Expected<std::optional<bool>> ask(Solver& solver, double seconds, Launch& launch, Element& at, const Fails& fails);

  /// Returns what is hard for the solver: "a division by a variable (line 3)"; empty if nothing is.
  std::string obstacle() const;

private:
  bool confirmed(Solver& solver, Launch& launch, Element& at, const Fails& fails);

  const ir::Module& claim;
  const std::set<std::string>& nondecreasing;
  Script script;
};

} // namespace attnc::proofs
