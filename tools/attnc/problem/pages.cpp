#include "problem/pages.h"

#include "reference/cache.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

namespace attnc::cli {
namespace {

char* rowOf(const HostTensor& tensor, int64_t entry, int64_t head, int64_t row) {
  const int64_t index = (entry * tensor.shape[1] + head) * tensor.shape[2] + row;
  return static_cast<char*>(tensor.view().data) + index * tensor.shape[3] * dtypeBytes(tensor.dtype);
}

/// Views of a cache for the reference.
struct CacheViews {
  TensorView rows, lengths;
  std::optional<TensorView> table;

  CacheViews(const HostTensor& rows, const HostTensor* table, const HostTensor& lengths)
      : rows(rows.view()), lengths(lengths.view()) {
    if (table) this->table = table->view();
  }
  reference::Cache cache() const { return {rows, table ? &*table : nullptr, lengths}; }
};

} // namespace

HostTensor gatherPages(const HostTensor& pool, const HostTensor& table, const HostTensor& lengths) {
  const auto& shape = pool.shape;
  HostTensor rows = HostTensor::make(pool.dtype, {table.shape[0], shape[1], table.shape[1] * shape[2], shape[3]});
  reference::gatherRows(CacheViews(pool, &table, lengths).cache(), rows.view());
  return rows;
}

HostTensor dealToPages(const HostTensor& rows, const HostTensor& table, const HostTensor& lengths, int64_t pages,
                       int64_t pageSize) {
  HostTensor pool = HostTensor::make(rows.dtype, {pages, rows.shape[1], pageSize, rows.shape[3]});
  std::fill(pool.bytes.begin(), pool.bytes.end(), char(0xff)); // NaN in every format
  const int64_t bytes = dtypeBytes(rows.dtype);
  reference::eachRow(
      CacheViews(pool, &table, lengths).cache(), [](int64_t, int64_t) { return 0; },
      [&](int64_t offset, int64_t b, int64_t h, int64_t i) {
        std::memcpy(pool.bytes.data() + offset * bytes, rowOf(rows, b, h, i), size_t(rows.shape[3] * bytes));
      });
  return pool;
}

void appendRows(HostTensor& target, const HostTensor& rows, const HostTensor* table, const HostTensor& lengths,
                const std::optional<HostTensor>& cuSeqlensQ, const std::optional<HostTensor>& scales) {
  const TensorView starts = cuSeqlensQ ? cuSeqlensQ->view() : TensorView{};
  const TensorView ofHeads = scales ? scales->view() : TensorView{};
  reference::appendRows(CacheViews(target, table, lengths).cache(), rows.view(), rows.shape[2],
                        cuSeqlensQ ? &starts : nullptr, scales ? &ofHeads : nullptr);
}

HostTensor drawPageTable(int64_t batch, int64_t pagesOfSequence, uint64_t seed) {
  HostTensor table = HostTensor::make(DType::I32, {batch, pagesOfSequence});
  auto* pages = static_cast<int32_t*>(table.view().data);
  std::iota(pages, pages + table.elements(), 0);
  std::shuffle(pages, pages + table.elements(), std::mt19937_64(seed));
  return table;
}

} // namespace attnc::cli
