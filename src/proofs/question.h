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

  enum class Outcome {
    None,        ///< the claim has no example
    Found,       ///< launch and element are an example
    Unconfirmed, ///< the solver has examples, none of which is one for the interpreter
    Unknown,     ///< the solver ran out of time
  };

  /// Asks a new solver for an example against the claim, small extents first, which `fails` confirms.
  Expected<Outcome> ask(Solver& solver, double seconds, Launch& launch, Element& at, const Fails& fails);

  /// Returns what is hard for the solver: "a division by a variable (line 3)"; empty if nothing is.
  std::string obstacle() const;

private:
  bool confirmed(Solver& solver, Launch& launch, Element& at, const Fails& fails);

  const ir::Module& claim;
  const std::set<std::string>& nondecreasing;
  Script script;
};

} // namespace attnc::proofs
