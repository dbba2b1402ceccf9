#include "reference/problem.h"
#include "support/element.h"
#include "support/try.h"

#include <fmt/format.h>

namespace attnc::reference {
namespace {

std::string shapeOf(const TensorView& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape.begin(), tensor.shape.begin() + tensor.rank, ", "));
}

Status checkOperand(const char* name, const TensorView& tensor) {
  if (tensor.rank != 4)
    return Error::environment(
        fmt::format("{} has {} axes, must have 4: [batch, heads, length, head_dim]", name, tensor.rank));
  for (int axis = 0; axis < tensor.rank; ++axis)
    if (tensor.shape[axis] < 0)
      return Error::environment(fmt::format("{} has the shape {}: an extent is negative", name, shapeOf(tensor)));
  if (!isFloat(tensor.dtype))
    return Error::environment(fmt::format("{} is {}, must be f32, f16 or bf16", name, dtypeName(tensor.dtype)));
  if (!tensor.data && tensor.elements() != 0) return Error::environment(fmt::format("{} has no data", name));
  return {};
}

} // namespace

Expected<ProblemShape> problemOf(const TensorView& q, const TensorView& k, const TensorView& v) {
  ATTNC_TRY(checkOperand("q", q));
  ATTNC_TRY(checkOperand("k", k));
  ATTNC_TRY(checkOperand("v", v));
  auto mismatch = [](const char* what, const char* a, const TensorView& first, const char* b, const TensorView& second,
                     const char* rule) {
    return Error::environment(
        fmt::format("{}: {} is {}, {} is {}; {}", what, a, shapeOf(first), b, shapeOf(second), rule));
  };
  if (q.shape[3] != k.shape[3] || q.shape[3] < 1)
    return mismatch("head dims differ", "q", q, "k", k, "the last extents must be equal and at least 1");
  if (k.shape[1] != v.shape[1]) return mismatch("heads differ", "k", k, "v", v, "the second extents must be equal");
  if (k.shape[2] != v.shape[2]) return mismatch("lengths differ", "k", k, "v", v, "the third extents must be equal");
  if (k.shape[0] != v.shape[0]) return mismatch("batches differ", "k", k, "v", v, "the first extents must be equal");
  if (k.shape[0] != q.shape[0] && k.shape[0] != 1)
    return mismatch("batches differ", "q", q, "k", k, "the batch of k and v must be that of q, or 1");
  if (k.shape[1] < 1 || q.shape[1] % k.shape[1] != 0)
    return mismatch("heads do not fit", "q", q, "k", k, "the heads of q must be a multiple of those of k and v");
  return ProblemShape{q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2]};
}

} // namespace attnc::reference
