// An example against a claim: a launch, and an element of it for which the claim is false.
#pragma once

#include "attnc/captures.h"
#include "attnc/prove.h"
#include "ir/bindings.h"
#include "ir/ir.h"
#include "support/element.h"

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace attnc::proofs {

/// Captures of a module in host memory, element by element.
class Launch {
public:
  ProblemShape problem;
  std::map<std::string, int64_t> extents; ///< free ones
  using ElementOf = std::function<Number(size_t tensor, llvm::ArrayRef<int64_t> index)>;
  using ScalarOf = std::function<Number(size_t scalar)>;
  /// Fills the captures. Returns false if they take more than 64 MiB, or do not bind.
  bool fill(const ir::Module& module, const ElementOf& elementOf, const ScalarOf& scalarOf);
  int64_t elements() const; ///< of all captured tensors
  const ir::Bindings& bound() const { return bindings; }

private:
  std::vector<std::vector<char>> storage;
  ir::Bindings bindings;
};

struct Element {
  int64_t b = 0, h = 0, q = 0, kv = 0;
};

/// Returns the first element of a launch for which the claim (the module's mask) is false.
std::optional<Element> failureIn(const ir::Module& claim, const Launch& launch);
/// Returns the first row of which no element lives, though the assumptions hold for all of them.
std::optional<Element> deadRowIn(const ir::Module& claim, const Launch& launch);

/// Draws small launches until one fails: `fails` returns the element. Returns nullopt if none does, or captures are
/// large.
std::optional<Element> drawFailure(const ir::Module& module, const std::set<std::string>& nondecreasing, Launch& launch,
                                   const std::function<std::optional<Element>(const Launch&)>& fails);

/// Whether the claim is false for an element.
bool isFalse(const ir::Module& claim, const Launch& launch, const Element& at);
/// Whether no element of a row lives, though the assumptions hold for all of them.
bool isRowDead(const ir::Module& claim, const Launch& launch, const Element& at);

/// Fills what a Proof tells of an example. `claim`: with an output kLive. `text`: the mod's.
void tell(const ir::Module& claim, const Launch& launch, const Element& at, bool isRow, llvm::StringRef text,
          Proof& proof);

} // namespace attnc::proofs
