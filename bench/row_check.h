// Checks long cases by rows drawn at random, in double precision on the CPU, instead of a whole naive pass.
//
// In: a case, its operands and results in device memory. Out: the largest error, in units of each row's RMS, or an
// exception. The rows are the same in every run. How likely a share of wrong rows is caught: reference/some_rows.h.
// Not: decode and paged cases, of which a naive pass is short.
#pragma once

#include "measure.h"

namespace attnc::bench {

/// Number of rows of out and dq that are computed, and of dk and dv, each of which sees all heads of its group.
constexpr int64_t kCheckedRows = 1024, kCheckedKvRows = 256;

/// Whether a forward or backward case is checked by rows: it has 2^30 pairs or more, masked ones included. A mod with
/// an approximate function is not, since the reference computes the function exactly.
bool isCheckedByRows(const Case& c, const CaseMod& mod);

/// `out`: of a forward launch.
double checkOutRows(const Workload& work, const DeviceTensor& out);

/// What a backward launch read besides the workload, and what it wrote.
struct BackwardResult {
  const DeviceTensor &out, &lse, &dOut, &dQ, &dK, &dV;
};
double checkGradientRows(const Workload& work, const BackwardResult& result);

} // namespace attnc::bench
