#include "reference/operand_values.h"

#include "ir/ir.h"
#include "support/ceil_div.h"
#include "support/element.h"
#include "support/try.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
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

int64_t pageAt(const TensorView& table, int64_t b, int64_t i) {
  return elementAt<int32_t>(table.data, b * table.stride[0] + i * table.stride[1]);
}

/// Checks the pages of the first `length` positions of a sequence.
Status checkPages(const TensorView& table, const TensorView& pool, int64_t b, int64_t length) {
  for (int64_t i = 0; i < ceilDiv(length, pool.shape[2]); ++i) {
    const int64_t page = pageAt(table, b, i);
    if (page < 0 || page >= pool.shape[0])
      return Error::environment(
          fmt::format("page_table: entry [{}, {}] is {}, of a pool of {} pages", b, i, page, pool.shape[0]));
  }
  return {};
}

/// The rows of q, or of k and v, of each sequence.
struct Rows {
  std::optional<TensorView> cumulative; ///< none: each sequence has a batch entry, or pages
  std::optional<TensorView> lengths;    ///< none: those of `cumulative`, or `most`
  int64_t batch, most;                  ///< sequences; rows of one, at most

  int64_t first(int64_t b) const { return cumulative ? numberAt(*cumulative, b) : 0; }
  int64_t count(int64_t b) const {
    const int64_t given = lengths ? numberAt(*lengths, b) : cumulative ? numberAt(*cumulative, b + 1) - first(b) : most;
    return std::min(given, most);
  }
};

/// Checks that no sequence has a row that another one appends, and that none appends a row twice.
Status checkAppended(const TensorView& table, int64_t pageSize, const Rows& q, const Rows& kv) {
  struct Entry {
    int64_t b, i, begin, end; ///< the rows of the page that are appended; its rows up to `end` are the sequence's
  };
  std::multimap<int64_t, Entry> written; // by page
  const auto forEachEntry = [&](auto visit) -> Status {
    for (int64_t b = 0; b < kv.batch; ++b)
      for (int64_t i = 0, left = kv.count(b); left > 0; ++i, left -= pageSize)
        ATTNC_TRY(
            visit(pageAt(table, b, i), Entry{b, i, std::max<int64_t>(left - q.count(b), 0), std::min(left, pageSize)}));
    return {};
  };
  ATTNC_TRY(forEachEntry([&](int64_t page, const Entry& entry) -> Status {
    if (entry.begin < entry.end) written.emplace(page, entry);
    return {};
  }));
  return forEachEntry([&](int64_t page, const Entry& entry) -> Status {
    for (auto [at, last] = written.equal_range(page); at != last; ++at) {
      const Entry& by = at->second;
      // A sequence's own older rows may be hidden by a window.
      const int64_t row = by.b == entry.b ? std::max(by.begin, entry.begin) : by.begin;
      if (row >= std::min(by.end, entry.end) || (by.b == entry.b && by.i == entry.i)) continue;
      return Error::environment(fmt::format("page_table: entries [{}, {}] and [{}, {}] are page {}, to whose row {} "
                                            "sequence {} appends",
                                            by.b, by.i, entry.b, entry.i, page, row, by.b),
                                "copy a page that sequences share before one of them appends to it");
    }
    return {};
  });
}

/// Checks the scales of the rows that sequences have. `areOfRows`: not of heads or blocks. `divides`: new rows are
/// divided by them.
Status checkScales(const char* name, const TensorView& scales, bool areOfRows, bool divides, const Rows& rows,
                   const TensorView* table, int64_t pageSize) {
  const bool areOfPages = areOfRows && table && scales.shape[2] == 1;
  const int64_t step = areOfPages ? pageSize : areOfRows ? 1 : scales.rank == 3 ? kRowsOfScale : rows.most;
  for (int64_t b = 0; b < rows.batch; ++b)
    for (int64_t row = 0, count = rows.count(b); row < count; row += step) {
      int64_t entry = scales.rank > 1 && scales.shape[0] > 1 ? b : 0, place = row / step;
      if (areOfRows) place = rows.first(b) + row;
      if (areOfRows && table) entry = pageAt(*table, b, row / pageSize), place = areOfPages ? 0 : row % pageSize;
      for (int64_t h = 0; h < scales.shape[scales.rank > 1]; ++h) {
        const int64_t all[] = {entry, h, place, 0}, *index = scales.rank > 1 ? all : all + 1;
        int64_t offset = 0;
        for (int axis = 0; axis < scales.rank; ++axis) offset += index[axis] * scales.stride[axis];
        const auto scale = elementAt<float>(scales.data, offset);
        if (std::isfinite(scale) && scale >= 0 && !(divides && scale == 0)) continue;
        return Error::environment(fmt::format(
            "{}[{}] is {}, expected {}", name, fmt::join(index, index + scales.rank, ", "), scale,
            divides ? "a finite number above 0: new rows are divided by it" : "a finite number, 0 or above"));
      }
    }
  return {};
}

} // namespace

Status checkValues(const Operands& operands) {
  const auto& [cuQ, cuKv, table] = std::tie(operands.cuSeqlensQ, operands.cuSeqlensKv, operands.pageTable);
  const int64_t rows = operands.k.shape[2], room = table ? table->shape[1] * rows : rows;
  if (cuQ) ATTNC_TRY(checkCumulative("cu_seqlens_q", *cuQ, operands.q.shape[2]));
  if (cuKv) ATTNC_TRY(checkCumulative("cu_seqlens_kv", *cuKv, rows));
  const int64_t batch = cuQ ? cuQ->shape[0] - 1 : operands.q.shape[0];
  const Rows ofQ{cuQ, {}, batch, cuQ && operands.maxQLen ? operands.maxQLen : operands.q.shape[2]};
  Rows ofKv{cuKv ? cuKv : cuQ, operands.kvLengths, batch, cuQ && operands.maxKvLen ? operands.maxKvLen : room};
  if (table) ofKv.cumulative.reset();
  if (operands.kvLengths)
    for (int64_t b = 0; b < batch; ++b) {
      const auto& of = ofKv.cumulative;
      ATTNC_TRY(checkNumber("kv_lengths", b, numberAt(*operands.kvLengths, b), 0,
                            of ? numberAt(*of, b + 1) - numberAt(*of, b) : room,
                            table ? "the rows that page_table has room for" : "the rows of the sequence in k"));
      if (table) ATTNC_TRY(checkPages(*table, operands.k, b, ofKv.count(b)));
    }
  if (operands.qOffsets)
    for (int64_t b = 0; b < batch; ++b)
      ATTNC_TRY(checkNumber("q_offsets", b, numberAt(*operands.qOffsets, b), -ir::kMaxExtent,
                            ir::kMaxExtent - std::min(ofQ.most, ir::kMaxExtent),
                            "the positions that a query may have"));
  if (table && operands.newK) ATTNC_TRY(checkAppended(*table, rows, ofQ, ofKv));
  const bool isFp8 = operands.q.dtype == DType::E4M3;
  const auto check = [&](const char* name, const std::optional<TensorView>& scales, const Rows& of, bool isInPages) {
    if (!scales) return Status();
    const bool areOfRows = scales->rank > 2 && (!isFp8 || scalesAreOfRows(*scales, of.most, isInPages));
    return checkScales(name, *scales, areOfRows, &of == &ofKv && operands.newK && !isFp8, of,
                       isInPages ? &*table : nullptr, rows);
  };
  ATTNC_TRY(check("q_scales", operands.qScales, ofQ, false));
  ATTNC_TRY(check("k_scales", operands.kScales, ofKv, table.has_value()));
  return check("v_scales", operands.vScales, ofKv, table.has_value());
}

} // namespace attnc::reference
