// Where the sequences of a batch lie, and what of them lives: as a module with the outputs of sequences says
// (src/ir/outputs.h), and without those as q, k and v have it.
#pragma once

#include "ir/bindings.h"
#include "ir/ir.h"
#include "reference/attention.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace attnc::reference {

/// A batch entry. Starts: rows of q, and of k and v, before its own in a ragged batch; else 0.
struct Sequence {
  int64_t qLength, kvLength, qOffset, qStart, kvStart;
};

/// A row of q: of batch entry b and head h, row q of its sequence.
struct QueryRow {
  int64_t b, h, q;
};

class Sequences {
public:
  Sequences(const ir::Module& module, const ir::Bindings& bindings, const ProblemShape& problem,
            const AttentionArgs& args);

  const Sequence& operator[](int64_t b) const { return all[size_t(b)]; }

  /// Row `index` of [batch of q, H, rows of q]; nullopt: it is of no sequence.
  std::optional<QueryRow> rowAt(int64_t index) const;
  /// The same backwards.
  int64_t indexOf(const QueryRow& row) const;
  /// The index of row 0 of a sequence's k and v in [batch of k, HKV, rows of k].
  int64_t firstKvOf(int64_t b, int64_t kvHead) const;

private:
  ProblemShape problem;
  int64_t rowsOfQ, rowsOfKv;
  bool isRagged, isKvShared;
  std::vector<Sequence> all;
  std::vector<int64_t> ofRow; ///< of a ragged batch: whose row it is; -1: none
};

/// Extents of the problem that the operands pose, with the same checks as attention().
Expected<ProblemShape> problemOf(const AttentionArgs& args);

/// What bind() needs of them.
ir::SequenceTensors sequenceTensorsOf(const AttentionArgs& args);

} // namespace attnc::reference
