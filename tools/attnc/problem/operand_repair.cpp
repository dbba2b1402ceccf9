#include "problem/operand_repair.h"

#include "text.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnc::cli {
namespace {

/// No model has more KV heads; sequences that short are rare.
constexpr int64_t kMostHeads = 64;

} // namespace

std::string layoutRepair(const HostTensors& operands, bool isSure) {
  for (const HostTensor* tensor : {&operands.q, &operands.k, &operands.v})
    if (tensor->shape.size() != 4) return "";
  const auto &q = operands.q.shape, &k = operands.k.shape, &v = operands.v.shape;
  const bool fitsTurned = k[1] == v[1] && k[2] == v[2] && k[2] > 0 && q[2] % k[2] == 0 && q[3] == k[3];
  if (!fitsTurned || k[1] <= k[2] || (isSure && k[1] <= kMostHeads)) return "";
  return fmt::format("q {} and k {} look like [batch, length, heads, head_dim], and attnc takes [batch, heads, length, "
                     "head_dim]: save q.transpose(1, 2).contiguous(), and the same of k and v",
                     shapeText(q), shapeText(k));
}

std::string operandRepair(const HostTensors& operands) {
  const std::pair<const char*, const HostTensor*> all[] = {{"q", &operands.q}, {"k", &operands.k}, {"v", &operands.v}};
  for (const auto& [name, tensor] : all)
    if (tensor->shape.size() == 3) return fmt::format("{} of one batch entry: save {}.unsqueeze(0)", name, name);
  for (const auto& [name, tensor] : all)
    if (tensor->shape.size() != 4) return "";
  if (std::string turned = layoutRepair(operands, /*isSure=*/false); !turned.empty()) return turned;
  for (const auto& [name, tensor] : all)
    if (tensor->dtype != operands.q.dtype) return fmt::format("save {}.to(q.dtype)", name);
  const int64_t heads = operands.q.shape[1], kvHeads = operands.k.shape[1];
  if (kvHeads < 1 || heads % kvHeads == 0) return "";
  const int64_t below = heads / kvHeads * kvHeads;
  return fmt::format("{} KV heads serve {}{} query heads, not {}", kvHeads, below ? fmt::format("{} or ", below) : "",
                     below + kvHeads, heads);
}

} // namespace attnc::cli
