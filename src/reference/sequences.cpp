#include "reference/sequences.h"

#include "ir/bind.h"
#include "ir/interpreter.h"

#include <llvm/ADT/STLExtras.h>

#include <algorithm>

namespace attnc::reference {

Sequences::Sequences(const ir::Module& module, const ir::Bindings& bindings, const ProblemShape& problem,
                     const Operands& args)
    : isPacked(llvm::any_of(module.tensors, [](const auto& each) { return each.name == ir::kKvStartsTensor; })),
      problem(problem), rowsOfQ(args.q.shape[2]), rowsOfKv(args.k.shape[2]), isRagged(args.cuSeqlensQ.has_value()),
      isKvShared(args.k.shape[0] == 1), all(size_t(problem.batch), {problem.qLen, problem.kvLen, 0, 0, 0}) {
  const auto read = [&](const ir::OutputRole& role, int64_t Sequence::*field) {
    const std::optional<ir::Value> value = module.output(role);
    if (!value) return;
    const ir::Evaluator evaluator(module, bindings, *value);
    for (int64_t b = 0; b < problem.batch; ++b) all[size_t(b)].*field = evaluator.evaluate(0, b, 0, 0, 0).integer;
  };
  read(ir::kKvLength, &Sequence::kvLength);
  read(ir::kQOffset, &Sequence::qOffset);
  read(ir::kQLength, &Sequence::qLength);
  read(ir::kQStart, &Sequence::qStart);
  read(ir::kKvStart, &Sequence::kvStart);
  if (!isRagged) return;
  ofRow.assign(size_t(rowsOfQ), -1);
  for (int64_t b = 0; b < problem.batch; ++b) {
    const Sequence& of = all[size_t(b)];
    const auto first = ofRow.begin() + of.qStart;
    std::fill(first, first + of.qLength, b);
  }
}

std::optional<QueryRow> Sequences::rowAt(int64_t index) const {
  const int64_t row = index % rowsOfQ, h = index / rowsOfQ % problem.qHeads;
  if (!isRagged) return QueryRow{index / rowsOfQ / problem.qHeads, h, row};
  const int64_t b = ofRow[size_t(row)];
  if (b < 0) return std::nullopt;
  return QueryRow{b, h, row - all[size_t(b)].qStart};
}

int64_t Sequences::indexOf(const QueryRow& row) const {
  return ((isRagged ? 0 : row.b) * problem.qHeads + row.h) * rowsOfQ + all[size_t(row.b)].qStart + row.q;
}

int64_t Sequences::firstKvOf(int64_t b, int64_t kvHead) const {
  return ((isKvShared ? 0 : b) * problem.kvHeads + kvHead) * rowsOfKv + all[size_t(b)].kvStart;
}

int64_t Sequences::firstColumnOf(int64_t b, int64_t h) const {
  return isPacked ? h * rowsOfKv + all[size_t(b)].kvStart : (b * problem.qHeads + h) * problem.kvLen;
}

Expected<ProblemShape> problemOf(const Operands& args) {
  TensorView q = args.q;
  if (args.cuSeqlensQ && args.k.shape[0] != 1) q.shape[0] = args.cuSeqlensQ->shape[0] - 1; // k and v came from pages
  auto problem = problemOf(q, args.k, args.v);
  return problem ? ir::problemOf(*problem, args) : std::move(problem);
}

} // namespace attnc::reference
