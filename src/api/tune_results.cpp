#include "api/tune_results.h"

#include "jit/measure.h"
#include "reference/compare.h"
#include "support/element.h"
#include "support/try.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace attnc {
namespace {

Expected<BroughtTensor> bring(const TensorView& view, Stream stream) {
  BroughtTensor brought;
  if (view.elements() == 0) return brought;
  int64_t last = 0;
  for (int axis = 0; axis < view.rank; ++axis) {
    const int64_t reach = (view.shape[size_t(axis)] - 1) * view.stride[size_t(axis)];
    (reach < 0 ? brought.first : last) += reach;
  }
  const int64_t size = dtypeBytes(view.dtype);
  brought.bytes.resize(size_t((last - brought.first + 1) * size));
  const char* begin = static_cast<const char*>(view.data) + brought.first * size;
  ATTNC_TRY(jit::bringBack(brought.bytes.data(), begin, brought.bytes.size(), stream));
  return brought;
}

/// Calls `body(offset)` for each element of a view.
template <class Body> void forElements(const TensorView& view, const Body& body) {
  std::array<int64_t, TensorView::kMaxRank> at{};
  for (int64_t left = view.elements(), offset = 0; left > 0; --left) {
    body(offset);
    for (int axis = view.rank - 1; axis >= 0; --axis) {
      const size_t i = size_t(axis);
      offset += view.stride[i];
      if (++at[i] < view.shape[i]) break;
      offset -= view.shape[i] * view.stride[i];
      at[i] = 0;
    }
  }
}

/// Returns how much rounding in another order may change, relative to the largest element.
double toleranceOf(DType dtype, bool tf32) {
  if (dtype == DType::F32) return tf32 ? 5e-3 : 1e-4;
  return dtype == DType::F16 ? 0x1p-8 : 0x1p-6;
}

std::string differenceOf(const TensorView& view, const BroughtTensor& model, const BroughtTensor& other,
                         double tolerance) {
  const auto at = [&](const BroughtTensor& brought, int64_t offset) {
    return double(readElement(brought.bytes.data(), view.dtype, offset - brought.first).real);
  };
  double largest = 0;
  forElements(view, [&](int64_t offset) {
    if (const double value = std::fabs(at(model, offset)); std::isfinite(value)) largest = std::max(largest, value);
  });
  reference::Comparison comparison({.absolute = tolerance * largest, .relative = tolerance});
  forElements(view, [&](int64_t offset) { comparison.add(at(other, offset), at(model, offset)); });
  return comparison.firstBadText();
}

} // namespace

Expected<LaunchResults> LaunchResults::of(const std::vector<TensorView>& views, Stream stream) {
  LaunchResults results;
  for (const TensorView& view : views) {
    ATTNC_TRY_AS(brought, bring(view, stream));
    results.tensors.emplace_back(view, *std::move(brought));
  }
  return results;
}

std::string differenceOf(const LaunchResults& model, const LaunchResults& other, bool tf32) {
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    const auto& [view, brought] = model.tensors[i];
    const double tolerance = toleranceOf(view.dtype, tf32);
    if (std::string what = differenceOf(view, brought, other.tensors[i].second, tolerance); !what.empty()) return what;
  }
  return {};
}

} // namespace attnc
