// In: a module as traced, and how its rows and heads lie in a larger problem. Out: the same module of these.
//
//   tensor bias: f32[KV_LEN]                  tensor bias: f32[attnc_whole_kv_len]
//   %0 = load f32 bias[%kv_idx]        =>     tensor attnc_key_positions: i32[KV_LEN]
//                                             %0 = load i32 attnc_key_positions[%kv_idx]
//                                             %1 = load f32 bias[%0]
//
// Coordinates on grids become divisions first: no rows of a shard form boxes.
#include "passes/place_rows.h"

#include "passes/ir_names.h"
#include "passes/pass.h"
#include "passes/rebuild.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include <optional>

namespace attnc::passes {
namespace {

using ir::BuiltinDim;

/// One of the axes that a shard has a part of.
struct PlacedAxis {
  BuiltinDim dim;
  std::optional<ir::ParamKind> param; ///< position along the axis, if mods have it
  RowPlace place;
  ir::ParamKind index; ///< of the shard, by which positions are found
  llvm::StringLiteral positions, first, whole;
  std::optional<int64_t> wholeDim = {}, wholeScalar = {};
  int64_t source = 0; ///< index of the tensor of positions, or of the scalar

  BuiltinDim rows() const { return index == ir::ParamKind::QIdx ? BuiltinDim::QLen : BuiltinDim::KvLen; }

  bool isOf(const ir::Extent& extent) const { return extent.isNamed && extent.value == int64_t(dim); }
};

Status checkNames(const ir::Module& module, const PlacedAxis& axis) {
  for (llvm::StringRef name : {axis.positions, axis.first, axis.whole}) {
    const auto isNamed = [&](const auto& capture) { return capture.name == name; };
    if (llvm::any_of(module.tensors, isNamed) || llvm::any_of(module.scalars, isNamed) ||
        llvm::is_contained(module.dims, name))
      return Error::environment(fmt::format("the mod declares '{}', a name that attnc needs for itself", name.str()),
                                "rename it");
  }
  return {};
}

bool readsLength(const ir::Module& module, const PlacedAxis& axis) {
  const std::vector<bool> needed = ir::neededByOutputs(module);
  for (uint32_t id = 0; id < module.size(); ++id)
    if (needed[id] && module[{id}].op == Op::Dim && module[{id}].attr == int64_t(axis.dim)) return true;
  return false;
}

/// Gives captures their whole extents, and declares what tells the positions.
void declare(ir::Module& module, PlacedAxis& axis) {
  if (readsLength(module, axis)) {
    axis.wholeScalar = int64_t(module.scalars.size());
    module.scalars.push_back({axis.whole.str(), Type::I32});
  }
  for (ir::TensorCapture& tensor : module.tensors)
    for (ir::Extent& extent : tensor.shape) {
      if (!axis.isOf(extent)) continue;
      if (!axis.wholeDim) {
        axis.wholeDim = int64_t(module.dims.size());
        module.dims.push_back(axis.whole.str());
      }
      extent.value = *axis.wholeDim;
    }
  if (axis.param && axis.place == RowPlace::Run) {
    axis.source = int64_t(module.scalars.size());
    module.scalars.push_back({axis.first.str(), Type::I32});
  }
}

int64_t declareTensor(ir::Module& module, llvm::StringRef name, BuiltinDim rows) {
  module.tensors.push_back({name.str(), DType::I32, {{.isNamed = true, .value = int64_t(rows)}}});
  return int64_t(module.tensors.size()) - 1;
}

/// Lets rows see keys of their own sequence only.
void separateSequences(ir::Module& module, int64_t rowSequences, int64_t keySequences) {
  const ir::Value row = module.make(Op::Load, Type::I32, {module.param(ir::ParamKind::QIdx)}, rowSequences);
  const ir::Value key = module.make(Op::Load, Type::I32, {module.param(ir::ParamKind::KvIdx)}, keySequences);
  const ir::Value isOne = module.make(Op::Eq, Type::Bool, {row, key});
  const std::optional<ir::Value> mask = module.output(ir::kMask);
  module.setOutput(ir::kMask, mask ? module.make(Op::And, Type::Bool, {isOne, *mask}) : isOne);
}

} // namespace

Expected<ir::Module> placeRows(ir::Module module, RowPlaces places) {
  std::vector<PlacedAxis> axes = {
      {BuiltinDim::QLen, ParamKind::QIdx, places.rows, ParamKind::QIdx, kRowPositions, kFirstRow, kWholeQLen},
      {BuiltinDim::KvLen, ParamKind::KvIdx, places.keys, ParamKind::KvIdx, kKeyPositions, kFirstKey, kWholeKvLen},
  };
  if (places.haveFewerHeads) {
    axes.push_back({BuiltinDim::H, ParamKind::H, RowPlace::Run, ParamKind::H, "", kFirstHead, kWholeHeads});
    axes.push_back({BuiltinDim::HKV, {}, RowPlace::Run, ParamKind::H, "", "", kWholeKvHeads});
  }
  if (places.arePacked)
    axes.push_back(
        {BuiltinDim::B, ParamKind::B, RowPlace::Listed, ParamKind::QIdx, kRowSequences, kKeySequences, kWholeBatch});
  ATTNC_TRY(lowerGrids(module, {}));
  module.grids.clear();
  for (PlacedAxis& axis : axes) {
    ATTNC_TRY(checkNames(module, axis));
    declare(module, axis);
  }
  for (PlacedAxis& axis : axes) { // these keep the extents of the shard
    if (axis.place == RowPlace::Run) continue;
    axis.source = declareTensor(module, axis.positions, axis.rows());
  }
  const int64_t keySequences = places.arePacked ? declareTensor(module, kKeySequences, BuiltinDim::KvLen) : 0;
  if (module.tensors.size() + module.scalars.size() > ir::kMaxCaptures)
    return Error::environment(fmt::format("the mod has too many captures for a shard, which adds up to 10 to the limit "
                                          "of {}",
                                          ir::kMaxCaptures));
  ir::Module placed = rebuild(module, [&](ir::Module& out, const ir::Node& node) {
    for (const PlacedAxis& axis : axes) {
      if (node.op == Op::Dim && node.attr == int64_t(axis.dim)) return out.scalar(unsigned(*axis.wholeScalar));
      if (node.op != Op::Param || !axis.param || node.attr != int64_t(*axis.param)) continue;
      const ir::Value row = out.param(axis.index);
      if (axis.place == RowPlace::Listed) return out.make(Op::Load, Type::I32, {row}, axis.source);
      return out.make(Op::Add, Type::I32, {row, out.scalar(unsigned(axis.source))});
    }
    return keep(out, node);
  });
  if (places.arePacked) separateSequences(placed, axes.back().source, keySequences);
  return placed;
}

} // namespace attnc::passes
