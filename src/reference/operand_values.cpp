#include "reference/operand_values.h"

#include "ir/ir.h"
#include "support/ceil_div.h"
#include "support/element.h"
#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>

namespace attnc::reference {
namespace {

int64_t numberAt(const TensorView& tensor, int64_t i) { return elementAt<int32_t>(tensor.data, i * tensor.stride[0]); }

Status checkNumber(const char* name, int64_t b, int64_t number, int64_t least, int64_t most, const std::string& why) {
  if (number >= least && number <= most) return {};
  return Error::environment(fmt::format("{}[{}] is {}, expected {} to {}: {}", name, b, number, least, most, why));
}

Status checkCumulative(const char* name, const TensorView& cumulative, int64_t rows) {
  for (int64_t b = 0; b < cumulative.shape[0]; ++b)
    ATTNC_TRY(checkNumber(name, b, numberAt(cumulative, b), b ? numberAt(cumulative, b - 1) : 0, rows,
                          "it ascends, up to the rows there are"));
  return {};
}

/// Checks the pages of the first `length` positions of a sequence.
Status checkPages(const TensorView& table, const TensorView& pool, int64_t b, int64_t length) {
  for (int64_t i = 0; i < ceilDiv(length, pool.shape[2]); ++i) {
    const int64_t page = elementAt<int32_t>(table.data, b * table.stride[0] + i * table.stride[1]);
    if (page < 0 || page >= pool.shape[0])
      return Error::environment(
          fmt::format("page_table: entry [{}, {}] is {}, of a pool of {} pages", b, i, page, pool.shape[0]));
  }
  return {};
}

} // namespace

Status checkValues(const Operands& operands) {
  const auto& [cuQ, cuKv, table] = std::tie(operands.cuSeqlensQ, operands.cuSeqlensKv, operands.pageTable);
  const int64_t rows = operands.k.shape[2], room = table ? table->shape[1] * rows : rows;
  if (cuQ) ATTNC_TRY(checkCumulative("cu_seqlens_q", *cuQ, operands.q.shape[2]));
  if (cuKv) ATTNC_TRY(checkCumulative("cu_seqlens_kv", *cuKv, rows));
  if (operands.kvLengths)
    for (int64_t b = 0; b < operands.kvLengths->shape[0]; ++b) {
      const auto& of = cuKv ? cuKv : cuQ;
      const int64_t length = numberAt(*operands.kvLengths, b),
                    most = table || !of ? room : numberAt(*of, b + 1) - numberAt(*of, b);
      ATTNC_TRY(checkNumber("kv_lengths", b, length, 0, most,
                            table ? "the rows that page_table has room for" : "the rows of the sequence in k"));
      const int64_t longest = cuQ && operands.maxKvLen ? operands.maxKvLen : room;
      if (table) ATTNC_TRY(checkPages(*table, operands.k, b, std::min(length, longest)));
    }
  const int64_t qLen = cuQ && operands.maxQLen ? operands.maxQLen : operands.q.shape[2];
  if (operands.qOffsets)
    for (int64_t b = 0; b < operands.qOffsets->shape[0]; ++b)
      ATTNC_TRY(checkNumber("q_offsets", b, numberAt(*operands.qOffsets, b), -ir::kMaxExtent,
                            ir::kMaxExtent - std::min(qLen, ir::kMaxExtent), "the positions that a query may have"));
  return {};
}

} // namespace attnc::reference
