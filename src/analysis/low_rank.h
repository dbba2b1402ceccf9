// Low-rank terms of score_mod: sums of products of a number of the query and a number of the key, added to the score
// before anything else happens to it.
//
//   score_mod = f(score + sum over r of q_factor[r] * kv_factor[r])
//
// In: a module after the passes. Out: the products and what remains of the sum. Products may stand
// in a sum over a loop, or next to each other, with factors and divisors around them. Not: a term that is added
// elsewhere, or a score that is also used without it, also by gradients; squares of differences, which would cancel.
#pragma once

#include "ir/ir.h"

#include <llvm/ADT/SmallVector.h>

#include <optional>
#include <string>
#include <vector>

namespace attnc::analysis {

struct LowRankTerm {
  struct Factor {
    ir::Value value;
    bool divides = false;
  };
  using Factors = llvm::SmallVector<Factor, 2>;
  /// A product; with a loop, one for each of its indices.
  struct Part {
    Factors q, kv; ///< known per row, and per column. Empty: 1
    std::optional<ir::Loop> loop;
    bool isNegative = false;
    int64_t rank() const { return loop ? loop->count : 1; }
  };
  /// An addend that is no product of the two.
  struct Rest {
    ir::Value value;
    Factors factors;
    bool isNegative = false;
  };
  std::vector<Part> parts; ///< at least one
  std::vector<Rest> rest;  ///< in the order of the sum
  ir::Value sum;           ///< the score plus all of these: the only use of the score
  int64_t rank = 0;        ///< of all parts
  /// A factor that is known at launch: a constant, or a run-time scalar by its index.
  struct Gain {
    bool divides = false;
    float constant = 1;
    std::optional<unsigned> scalar = {};
  };
  /// By part: the gains of its numbers of bf16 for the row. Unset if one of these has another factor.
  std::optional<std::vector<llvm::SmallVector<Gain, 2>>> gains;
  /// A tensor of bf16, of which an axis is indexed by the query or the key itself, another by the round, and each other
  /// axis by b, h or a constant.
  struct Elements {
    unsigned tensor;
    std::optional<unsigned> batch, head, row, rank;           ///< the axes; `row` and `rank` exist
    llvm::SmallVector<std::pair<unsigned, int64_t>, 2> first; ///< the index of round 0 on `rank`, and on other axes
  };
  /// Elements that are the numbers of bf16 for the row, or for the column. Unset if these are computed.
  std::optional<Elements> qElements, kvElements;
  bool qIsBf16 = false;  ///< whether each factor of the row is a number of bf16, times factors known per head
  bool kvIsBf16 = false; ///< whether each factor of the column is a number of bf16
  bool kvPerBatch = false, kvPerHead = false; ///< whether factors of the column depend on b; on h
};

struct LowRank {
  std::optional<LowRankTerm> term;
  std::string why; ///< why there is no term, although some sum has the form of one, or could have it; else empty
};

LowRank lowRank(const ir::Module& module);

} // namespace attnc::analysis
