// Where the sequences of a batch lie and which parts are live: from a module's outputs about sequences
// (src/ir/outputs.h), or from the shapes of q, k and v if it has none.
#pragma once

#include "ir/bind.h"
#include "ir/ir.h"
#include "reference/problem.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace attnc::reference {

/// A batch entry. In a ragged batch the starts are the number of rows of q, and of k and v, before its own; else 0.
struct Sequence {
  int64_t qLength, kvLength, qOffset, qStart, kvStart;
};

/// Row q of the sequence of batch entry b, for head h.
struct QueryRow {
  int64_t b, h, q;
};

class Sequences {
public:
  Sequences(const ir::Module& module, const ir::Bindings& bindings, const ProblemShape& problem, const Operands& args);

  const Sequence& operator[](int64_t b) const { return all[size_t(b)]; }

  /// Returns row `index` of [batch of q, H, rows of q]; nullopt if it belongs to no sequence.
  std::optional<QueryRow> rowAt(int64_t index) const;
  /// Returns the index of a row: the inverse of rowAt().
  int64_t indexOf(const QueryRow& row) const;
  /// Returns the index of row 0 of a sequence's k and v in [batch of k, HKV, rows of k].
  int64_t firstKvOf(int64_t b, int64_t kvHead) const;
  /// Returns the index of column 0 of a sequence's scores in [B, H, KV_LEN]; if k is packed, in [1, H, rows of k].
  int64_t firstColumnOf(int64_t b, int64_t h) const;
  /// Whether the rows of k of all sequences lie one behind the other.
  const bool isPacked;

private:
  ProblemShape problem;
  int64_t rowsOfQ, rowsOfKv;
  bool isRagged, isKvShared;
  std::vector<Sequence> all;
  std::vector<int64_t> ofRow; ///< for a ragged batch: the batch entry of each row; -1: none
};

/// Returns the extents of the problem that the operands pose, with the same checks as attention(). For a ragged batch k
/// and v may be [B, HKV, KV_LEN, D]: what pages held, with the form SequenceForm::pages.
Expected<ProblemShape> problemOf(const Operands& args);

} // namespace attnc::reference
