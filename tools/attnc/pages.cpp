#include "pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

namespace attnc::cli {
namespace {

const int32_t* integersOf(const HostTensor& tensor) { return static_cast<const int32_t*>(tensor.view().data); }

/// Calls visit(row of a pool, row of a sequence) with the byte offsets of all rows that sequences have. False: an entry is
/// no page. `rowBytes`: of both.
template <class Visit>
Status eachRow(const HostTensor& table, const HostTensor& lengths, int64_t pages, int64_t heads, int64_t pageSize,
               size_t rowBytes, Visit visit) {
  const int64_t batch = table.shape[0], columns = table.shape[1], rows = columns * pageSize;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < std::min<int64_t>(integersOf(lengths)[b], rows); ++i) {
      const int64_t page = integersOf(table)[b * columns + i / pageSize];
      if (page < 0 || page >= pages)
        return Error::environment(fmt::format("page_table: entry [{}, {}] is {}, of a pool of {} pages", b, i / pageSize,
                                              page, pages));
      for (int64_t h = 0; h < heads; ++h)
        visit(size_t((page * heads + h) * pageSize + i % pageSize) * rowBytes, size_t((b * heads + h) * rows + i) * rowBytes);
    }
  return {};
}

size_t rowBytesOf(const HostTensor& tensor) { return size_t(tensor.shape[3] * dtypeBytes(tensor.dtype)); }

} // namespace

Expected<HostTensor> gatherPages(const HostTensor& pool, const HostTensor& table, const HostTensor& lengths) {
  const int64_t heads = pool.shape[1], pageSize = pool.shape[2];
  HostTensor rows = HostTensor::make(pool.dtype, {table.shape[0], heads, table.shape[1] * pageSize, pool.shape[3]});
  const size_t bytes = rowBytesOf(pool);
  const auto copy = [&](size_t from, size_t to) { std::memcpy(rows.bytes.data() + to, pool.bytes.data() + from, bytes); };
  if (Status ok = eachRow(table, lengths, pool.shape[0], heads, pageSize, bytes, copy); !ok) return std::move(ok).error();
  return rows;
}

HostTensor dealToPages(const HostTensor& rows, const HostTensor& table, const HostTensor& lengths, int64_t pages,
                       int64_t pageSize) {
  const int64_t heads = rows.shape[1];
  HostTensor pool = HostTensor::make(rows.dtype, {pages, heads, pageSize, rows.shape[3]});
  std::fill(pool.bytes.begin(), pool.bytes.end(), char(0xff)); // NaN in every format
  const size_t bytes = rowBytesOf(pool);
  const auto copy = [&](size_t to, size_t from) { std::memcpy(pool.bytes.data() + to, rows.bytes.data() + from, bytes); };
  (void)bool(eachRow(table, lengths, pages, heads, pageSize, bytes, copy));
  return pool;
}

HostTensor drawPageTable(int64_t batch, int64_t pagesOfSequence, uint64_t seed) {
  HostTensor table = HostTensor::make(DType::I32, {batch, pagesOfSequence});
  auto* pages = static_cast<int32_t*>(table.view().data);
  std::iota(pages, pages + table.elements(), 0);
  std::shuffle(pages, pages + table.elements(), std::mt19937_64(seed));
  return table;
}

} // namespace attnc::cli
