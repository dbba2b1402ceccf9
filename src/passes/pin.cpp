// In: any module, and pins: name -> value. Out: the same with constants for the pinned extents and scalars.
// Declarations stay, so bind() still requires these values. The kernel's caller checks that a launch gives the pinned
// values.
//
//   %0 = sub i32 #KV_LEN, 1   with KV_LEN=8192   =>   %0 = sub i32 8192, 1
#include "passes/pass.h"
#include "passes/rebuild.h"

#include "ir/ir.h"
#include "passes/ir_names.h"
#include "support/try.h"

#include <fmt/format.h>

namespace attnc::passes {

static Status checkPin(const ir::Module& module, const std::string& name, int64_t value) {
  for (size_t dim = 0; dim < module.dims.size(); ++dim) {
    if (module.dims[dim] != name) continue;
    int64_t limit = dim < ir::kBuiltinDims ? ir::kMaxExtent : std::numeric_limits<int32_t>::max();
    if (value >= 0 && value <= limit) return {};
    return Error::environment(fmt::format("pin {}={}: an extent must lie in 0..{}", name, value, limit));
  }
  for (const ir::ScalarCapture& scalar : module.scalars) {
    if (scalar.name != name) continue;
    bool fits = scalar.type == ir::Type::Bool ? (value == 0 || value == 1) : value == int32_t(value);
    if (fits) return {};
    return Error::environment(fmt::format("pin {}={}: the value does not fit {}", name, value,
                                          scalar.type == ir::Type::Bool ? "a bool" : "32 bits"));
  }
  return Error::environment(fmt::format("pin {}={}: the mod has no extent and no scalar of this name", name, value));
}

static void pinNumber(const ir::Module& module, ir::Grid::Number& number, const Pins& pins) {
  if (number.kind == ir::Grid::Number::Kind::Constant || number.kind == ir::Grid::Number::Kind::Rest) return;
  const bool isDim = number.kind == ir::Grid::Number::Kind::Dim;
  const auto pinned = pins.find(isDim ? module.dims[size_t(number.value)] : module.scalars[size_t(number.value)].name);
  if (pinned != pins.end()) number = {ir::Grid::Number::Kind::Constant, pinned->second};
}

Status pin(ir::Module& module, const PassContext& context) {
  const Pins& pins = context.pins;
  for (const auto& [name, value] : pins) ATTNC_TRY(checkPin(module, name, value));
  if (pins.empty()) return {};
  for (ir::Grid& grid : module.grids) {
    for (ir::Grid::Number& extent : grid.extents) pinNumber(module, extent, pins);
    pinNumber(module, grid.before, pins);
  }
  module = rebuild(module, [&](ir::Module& out, const ir::Node& node) {
    if (node.op != Op::Dim && node.op != Op::Scalar) return keep(out, node);
    auto pinned = pins.find(node.op == Op::Dim ? out.dims[node.attr] : out.scalars[node.attr].name);
    if (pinned == pins.end()) return keep(out, node);
    if (node.type == ir::Type::F32) return out.constF32(float(pinned->second));
    return out.constant(node.type, pinned->second);
  });
  return {};
}

} // namespace attnc::passes
