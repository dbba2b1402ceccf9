// Some rows of attention and of its gradients in double precision, for problems that are too long to compute whole.
//
// In: what attention() and gradients() take, and numbers of rows. Out: these rows, by the same definitions. Gradients
// are those behind a given forward pass: they take its out and lse as they are, so a row of dk costs a row of scores,
// and not a forward pass. Not: block masks, gradients of captures, gradients by lse.
//
// A share f of wrong rows is caught by n rows with probability 1 - (1 - f)^n: 1 % by 1024 rows always, 0.1 % in 64 of
// 100 cases.
#pragma once

#include "ir/bindings.h"
#include "reference/attention.h"
#include "reference/sequences.h"

#include <cstdint>
#include <vector>

namespace attnc::reference {

/// Draws `count` of the numbers below `rows`, in ascending order, some perhaps repeatedly. Equal arguments give equal
/// numbers.
std::vector<int64_t> drawRows(int64_t rows, int64_t count, uint64_t seed);

/// Rows are numbered as in the results of attention() and gradients(): [B, H, Q_LEN] and [B, HKV, KV_LEN]; ragged:
/// [1, H, rows of q], and so on. Functions use all cores.
class SomeRows {
public:
  /// Errors: those of attention(); a block mask, or k and v that batch entries share (internal). `module`: with
  /// d_score for gradients. It and `args` outlive the object. For gradients, `args` have dOut, and the out and lse of
  /// the forward pass.
  static Expected<SomeRows> make(const ir::Module& module, const Captures& captures, const BackwardOperands& args);

  /// Returns rows of out, [rows, DV]. A row without live scores, or of no sequence, is 0.
  std::vector<double> out(const std::vector<int64_t>& rows) const;
  /// Returns rows of dq, [rows, D].
  std::vector<double> dQ(const std::vector<int64_t>& rows) const;

  struct KvGradients {
    std::vector<double> dK, dV; ///< [rows, D], [rows, DV]
  };
  /// Returns rows of dk and dv. `rows`: of k.
  KvGradients dKv(const std::vector<int64_t>& rows) const;

private:
  SomeRows(const ir::Module& module, ir::Bindings bindings, const ProblemShape& problem, const BackwardOperands& args);

  const ir::Module* module;
  ir::Bindings bindings;
  ProblemShape problem;
  const BackwardOperands* args;
  Sequences sequences;
};

} // namespace attnc::reference
