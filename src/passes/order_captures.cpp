// In: any module. Out: tensors, scalars, grids and free extents in the order in which a walk from the outputs first
// meets them, followed by unused ones in declaration order. So the order of a kernel's arguments, and the module's
// hash, do not depend on the mod's order of declarations. Runs last: values keep their numbers from the other passes.
#include "passes/order_captures.h"
#include "passes/ir_names.h"
#include "passes/pass.h"
#include "passes/rebuild.h"

#include <llvm/ADT/STLExtras.h>

#include <vector>

namespace attnc::passes {
namespace {

/// An order under construction: index -> place, and the indices by place.
struct Order {
  std::vector<int64_t> placeOf, byPlace;
  explicit Order(size_t size) : placeOf(size, -1) {}
  void meet(int64_t index) {
    if (placeOf[index] >= 0) return;
    placeOf[index] = int64_t(byPlace.size());
    byPlace.push_back(index);
  }
  void meetAll() {
    for (size_t index = 0; index < placeOf.size(); ++index) meet(int64_t(index));
  }
  template <class T> std::vector<T> applied(const std::vector<T>& from) const {
    std::vector<T> result;
    for (int64_t index : byPlace) result.push_back(from[index]);
    return result;
  }
};

bool isOfGrid(const ir::Node& node) { return ir::info(node.op).rule == ir::TypeRule::Grid; }

/// The order of each kind of declaration.
struct Orders {
  Order tensors, scalars, dims, grids;
  explicit Orders(const ir::Module& module)
      : tensors(module.tensors.size()), scalars(module.scalars.size()), dims(module.dims.size()),
        grids(module.grids.size()) {
    for (unsigned dim = 0; dim < ir::kBuiltinDims; ++dim) dims.meet(dim);
  }
};

/// Visits what an output needs, operands before users. Follows the order of operands, since that of the arena depends
/// on the text.
void visit(const ir::Module& module, Value root, std::vector<bool>& seen, Orders& orders) {
  std::vector<std::pair<Value, unsigned>> path = {{root, 0}};
  while (!path.empty()) {
    auto& [value, next] = path.back();
    const ir::Node& node = module[value];
    if (!seen[value.id] && next < node.operands.size()) {
      path.push_back({node.operands[next++], 0});
      continue;
    }
    if (!seen[value.id]) {
      if (node.op == Op::Load) orders.tensors.meet(node.attr);
      if (node.op == Op::Scalar) orders.scalars.meet(node.attr);
      if (node.op == Op::Dim) orders.dims.meet(node.attr);
      if (isOfGrid(node)) orders.grids.meet(ir::GridAxis::of(node).grid);
    }
    seen[value.id] = true;
    path.pop_back();
  }
}

/// Puts the module's declarations into these orders.
void arrange(ir::Module& module, const Orders& orders) {
  ir::Module declared = module.declarations();
  declared.tensors = orders.tensors.applied(module.tensors);
  declared.scalars = orders.scalars.applied(module.scalars);
  declared.dims = orders.dims.applied(module.dims);
  declared.grids = orders.grids.applied(module.grids);
  const auto move = [&](ir::Grid::Number& number) {
    if (number.kind == ir::Grid::Number::Kind::Scalar) number.value = orders.scalars.placeOf[number.value];
    if (number.kind == ir::Grid::Number::Kind::Dim) number.value = orders.dims.placeOf[number.value];
  };
  for (ir::Grid& grid : declared.grids) {
    for (ir::Grid::Number& extent : grid.extents) move(extent);
    move(grid.before);
  }
  for (ir::TensorCapture& tensor : declared.tensors)
    for (ir::Extent& extent : tensor.shape)
      if (extent.isNamed) extent.value = orders.dims.placeOf[extent.value];
  ir::Module ordered = rebuild(module, [&](ir::Module& out, const ir::Node& node) {
    ir::Node moved = node;
    if (node.op == Op::Load) moved.attr = orders.tensors.placeOf[node.attr];
    if (node.op == Op::Scalar) moved.attr = orders.scalars.placeOf[node.attr];
    if (node.op == Op::Dim) moved.attr = orders.dims.placeOf[node.attr];
    if (isOfGrid(node)) {
      ir::GridAxis at = ir::GridAxis::of(node);
      at.grid = unsigned(orders.grids.placeOf[at.grid]);
      moved.attr = at.attr();
    }
    return keep(out, moved);
  });
  ordered.tensors = std::move(declared.tensors);
  ordered.scalars = std::move(declared.scalars);
  ordered.dims = std::move(declared.dims);
  ordered.grids = std::move(declared.grids);
  module = std::move(ordered);
}

} // namespace

Status orderCaptures(ir::Module& module, const PassContext&) {
  Orders orders(module);
  std::vector<bool> seen(module.size(), false);
  for (const ir::Output& output : module.outputs()) visit(module, output.value, seen, orders);
  orders.grids.meetAll();
  const auto meetNumber = [&](const ir::Grid::Number& number) {
    if (number.kind == ir::Grid::Number::Kind::Scalar) orders.scalars.meet(number.value);
    if (number.kind == ir::Grid::Number::Kind::Dim) orders.dims.meet(number.value);
  };
  for (int64_t grid : orders.grids.byPlace) {
    for (const ir::Grid::Number& extent : module.grids[grid].extents) meetNumber(extent);
    meetNumber(module.grids[grid].before);
  }
  orders.tensors.meetAll();
  orders.scalars.meetAll();
  for (int64_t tensor : orders.tensors.byPlace)
    for (const ir::Extent& extent : module.tensors[tensor].shape)
      if (extent.isNamed) orders.dims.meet(extent.value);
  orders.dims.meetAll();
  arrange(module, orders);
  return {};
}

void orderLike(ir::Module& module, const ir::Module& like) {
  Orders orders(module);
  const auto meetLike = [](Order& order, const auto& own, const auto& theirs, auto nameOf) {
    for (const auto& one : theirs)
      if (const auto at = llvm::find_if(own, [&](const auto& mine) { return nameOf(mine) == nameOf(one); });
          at != own.end())
        order.meet(at - own.begin());
    order.meetAll();
  };
  const auto name = [](const auto& capture) -> const std::string& { return capture.name; };
  meetLike(orders.tensors, module.tensors, like.tensors, name);
  meetLike(orders.scalars, module.scalars, like.scalars, name);
  meetLike(orders.dims, module.dims, like.dims, [](const std::string& dim) -> const std::string& { return dim; });
  orders.grids.meetAll();
  arrange(module, orders);
}

} // namespace attnc::passes
