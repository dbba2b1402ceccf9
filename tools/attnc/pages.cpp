#include "pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

namespace attnc::cli {
namespace {

const int32_t* integersOf(const HostTensor& tensor) { return static_cast<const int32_t*>(tensor.view().data); }

char* rowOf(const HostTensor& tensor, int64_t entry, int64_t head, int64_t row) {
  const int64_t index = (entry * tensor.shape[1] + head) * tensor.shape[2] + row;
  return static_cast<char*>(tensor.view().data) + index * tensor.shape[3] * dtypeBytes(tensor.dtype);
}

/// Calls visit(row of `cache`, entry, head, position) for positions [begin(length), length) of all sequences. `cache`: a
/// pool, or without a table K or V as it is.
template <class Begin, class Visit>
Status eachRow(const HostTensor& cache, const HostTensor* table, const HostTensor& lengths, Begin begin, Visit visit) {
  const int64_t columns = table ? table->shape[1] : 1, rows = cache.shape[2];
  for (int64_t b = 0; b < lengths.elements(); ++b) {
    const int64_t length = std::clamp<int64_t>(integersOf(lengths)[b], 0, columns * rows);
    for (int64_t i = std::max<int64_t>(begin(length), 0); i < length; ++i) {
      const int64_t entry = table ? integersOf(*table)[b * columns + i / rows] : b;
      if (entry < 0 || entry >= cache.shape[0])
        return Error::environment(fmt::format("page_table: entry [{}, {}] is {}, of a pool of {} pages", b, i / rows, entry,
                                              cache.shape[0]));
      for (int64_t h = 0; h < cache.shape[1]; ++h) visit(rowOf(cache, entry, h, i % rows), b, h, i);
    }
  }
  return {};
}

constexpr auto kFromTheFirst = [](int64_t) { return 0; };

size_t rowBytes(const HostTensor& tensor) { return size_t(tensor.shape[3] * dtypeBytes(tensor.dtype)); }

} // namespace

Expected<HostTensor> gatherPages(const HostTensor& pool, const HostTensor& table, const HostTensor& lengths) {
  const auto& shape = pool.shape;
  HostTensor rows = HostTensor::make(pool.dtype, {table.shape[0], shape[1], table.shape[1] * shape[2], shape[3]});
  Status ok = eachRow(pool, &table, lengths, kFromTheFirst, [&](const char* from, int64_t b, int64_t h, int64_t i) {
    std::memcpy(rowOf(rows, b, h, i), from, rowBytes(pool));
  });
  if (!ok) return std::move(ok).error();
  return rows;
}

HostTensor dealToPages(const HostTensor& rows, const HostTensor& table, const HostTensor& lengths, int64_t pages,
                       int64_t pageSize) {
  HostTensor pool = HostTensor::make(rows.dtype, {pages, rows.shape[1], pageSize, rows.shape[3]});
  std::fill(pool.bytes.begin(), pool.bytes.end(), char(0xff)); // NaN in every format
  (void)bool(eachRow(pool, &table, lengths, kFromTheFirst, [&](char* to, int64_t b, int64_t h, int64_t i) {
    std::memcpy(to, rowOf(rows, b, h, i), rowBytes(pool));
  }));
  return pool;
}

Status appendRows(HostTensor& target, const HostTensor& rows, const HostTensor* table, const HostTensor& lengths) {
  const int64_t count = rows.shape[2];
  int64_t first = 0; // of the sequence at hand
  return eachRow(
      target, table, lengths, [&](int64_t length) { return first = length - count; },
      [&](char* to, int64_t b, int64_t h, int64_t i) { std::memcpy(to, rowOf(rows, b, h, i - first), rowBytes(rows)); });
}

HostTensor drawPageTable(int64_t batch, int64_t pagesOfSequence, uint64_t seed) {
  HostTensor table = HostTensor::make(DType::I32, {batch, pagesOfSequence});
  auto* pages = static_cast<int32_t*>(table.view().data);
  std::iota(pages, pages + table.elements(), 0);
  std::shuffle(pages, pages + table.elements(), std::mt19937_64(seed));
  return table;
}

} // namespace attnc::cli
