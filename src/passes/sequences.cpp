// In: a module as traced, and what is known about the sequences of a batch. Out: the same module with the output
// kv_length if sequences have KV lengths, and q_offset if queries have offsets. Then %q_idx, which was the row of q, is
// the position of the query. The values come from tensors that this pass declares.
//
//   tensor attnc_kv_lengths: i32[B]
//   %0 = load i32 attnc_kv_lengths[%b]
//   %1 = max i32 %0, 0
//   %2 = min i32 %1, #KV_LEN
//   output kv_length(b) -> %2
//   %3 = sub i32 %2, #Q_LEN
//   output q_offset(b) -> %3
//
// For a ragged batch the outputs q_start, q_length, kv_start and kv_length say where the rows of each sequence begin
// and how many there are. They come from the tensors attnc_q_starts, attnc_q_ends, attnc_kv_starts and attnc_kv_ends.
// The lengths replace #Q_LEN and #KV_LEN above. If k and v lie in pages, kv_start is 0, and kv_length is as above.
//
// A captured tensor's axis of extent Q_LEN has an entry for each row of q. If %q_idx moves the index along this axis,
// the offset is subtracted again:
//
//   %4 = load f32 bias[%q_idx]           =>   %4 = sub i32 %q_idx, %3;  %5 = load f32 bias[%4]
#include "passes/sequences.h"

#include "ir/ir.h"
#include "ir/walk.h"
#include "passes/ir_names.h"
#include "passes/pass.h"
#include "passes/rebuild.h"
#include "support/try.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

namespace attnc::passes {
namespace {

/// Writes the values of a batch entry into a module that declares the tensors it needs.
class SequenceValues {
public:
  SequenceValues(ir::Module& out, const SequenceForm& form) : out(out), form(form) {}

  Value kvLength() {
    const Value extent = dim(ir::BuiltinDim::KvLen);
    const bool isPacked = form.ragged && !form.pages;
    const Value rows =
        isPacked ? within(make(Op::Sub, element(ir::kKvEndsTensor), kvStart()), number(0), extent) : extent;
    return form.lengths ? within(element(ir::kKvLengthsTensor), number(0), rows) : rows;
  }

  Value qLength() {
    const Value extent = dim(ir::BuiltinDim::QLen);
    return form.ragged ? within(make(Op::Sub, element(ir::kQEndsTensor), qStart()), number(0), extent) : extent;
  }

  Value qStart() { return element(ir::kQStartsTensor); }
  Value kvStart() { return form.pages ? number(0) : element(ir::kKvStartsTensor); }

  Value qOffset() {
    const Value extent = dim(ir::BuiltinDim::QLen), rows = qLength();
    if (form.offsets == QueryOffsets::FromLengths) return make(Op::Sub, kvLength(), rows);
    return within(element(ir::kQOffsetsTensor), number(-ir::kMaxExtent), make(Op::Sub, number(ir::kMaxExtent), extent));
  }

private:
  Value number(int64_t value) { return out.constInt(Type::I32, value); }
  Value dim(ir::BuiltinDim dim) { return out.dim(unsigned(dim)); }
  Value make(Op op, Value x, Value y) { return out.make(op, Type::I32, {x, y}); }
  Value within(Value value, Value lo, Value hi) { return make(Op::Min, make(Op::Max, value, lo), hi); }
  Value element(llvm::StringRef tensor) {
    for (size_t i = 0; i < out.tensors.size(); ++i)
      if (out.tensors[i].name == tensor) return out.make(Op::Load, Type::I32, {out.param(ParamKind::B)}, int64_t(i));
    return number(0);
  }

  ir::Module& out;
  const SequenceForm& form;
};

Status declare(ir::Module& module, llvm::StringRef name) {
  const auto isNamed = [&](const auto& capture) { return capture.name == name; };
  if (llvm::any_of(module.tensors, isNamed) || llvm::any_of(module.scalars, isNamed))
    return Error::environment(fmt::format("the mod captures '{}', a name that attnc needs for itself", name.str()),
                              "rename the capture");
  const ir::Extent batch{.isNamed = true, .value = int64_t(ir::BuiltinDim::B)};
  module.tensors.push_back({name.str(), DType::I32, {batch}});
  return {};
}

bool isAlongRows(const ir::Extent& extent) { return extent.isNamed && extent.value == int64_t(ir::BuiltinDim::QLen); }

} // namespace

Status sequences(ir::Module& module, const PassContext& context) {
  const SequenceForm& form = context.sequences;
  if (form.isPlain() || module.output(ir::kKvLength) || module.output(ir::kQOffset)) return {};
  ir::Module out = module.declarations();
  if (form.lengths) ATTNC_TRY(declare(out, ir::kKvLengthsTensor));
  if (form.offsets == QueryOffsets::Tensor) ATTNC_TRY(declare(out, ir::kQOffsetsTensor));
  if (form.ragged)
    for (llvm::StringRef name : {ir::kQStartsTensor, ir::kQEndsTensor}) ATTNC_TRY(declare(out, name));
  if (form.ragged && !form.pages)
    for (llvm::StringRef name : {ir::kKvStartsTensor, ir::kKvEndsTensor}) ATTNC_TRY(declare(out, name));

  SequenceValues values(out, form);
  const bool offsets = form.offsets != QueryOffsets::None;
  const std::vector<ir::ParamSet> params = ir::paramsOf(module);
  std::vector<Value> now;
  for (uint32_t id = 0; id < module.size(); ++id) {
    ir::Node node = module[{id}];
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const bool moves = offsets && params[node.operands[i].id].contains(ParamKind::QIdx);
      node.operands[i] = now[node.operands[i].id];
      if (!moves || node.op != Op::Load || !isAlongRows(out.tensors[node.attr].shape[i])) continue;
      const Type type = out[node.operands[i]].type;
      Value offset = values.qOffset();
      if (type != Type::I32) offset = out.make(Op::Cast, type, {offset}, 0, node.line);
      node.operands[i] = out.make(Op::Sub, type, {node.operands[i], offset}, 0, node.line);
    }
    now.push_back(out.make(node.op, node.type, node.operands, node.attr, node.line));
  }
  for (ir::Output output : module.outputs()) {
    output.value = now[output.value.id];
    out.setOutput(std::move(output));
  }
  if (form.lengths || form.ragged) out.setOutput(ir::kKvLength, values.kvLength());
  if (offsets) out.setOutput(ir::kQOffset, values.qOffset());
  if (form.ragged) {
    out.setOutput(ir::kQLength, values.qLength());
    out.setOutput(ir::kQStart, values.qStart());
    out.setOutput(ir::kKvStart, values.kvStart());
  }
  module = std::move(out);
  return {};
}

ir::Module byRows(const ir::Module& module) {
  ir::Module out = module.declarations();
  out.offsetsQueries = false;
  std::vector<Value> now(module.size());
  const auto write = [&](uint32_t id) {
    ir::Node node = module[{id}];
    for (Value& operand : node.operands) operand = now[operand.id];
    now[id] = keep(out, node);
  };
  std::optional<Value> position;
  if (const std::optional<Value> offset = module.output(ir::kQOffset)) {
    const std::vector<bool> needed = ir::neededBy(module, *offset); // does not include q_idx: the offset depends only
                                                                    // on the batch entry
    for (uint32_t id = 0; id <= offset->id; ++id)
      if (needed[id]) write(id);
    position = out.make(Op::Add, Type::I32, {now[offset->id], out.param(ParamKind::QIdx)});
  }
  for (uint32_t id = 0; id < module.size(); ++id)
    if (position && module.isParam({id}, ParamKind::QIdx))
      now[id] = *position;
    else
      write(id);
  for (ir::Output output : module.outputs()) {
    if (!output.isCondition()) output.params |= {ParamKind::B};
    output.value = now[output.value.id];
    const auto isOutput = [&](const ir::OutputRole& role) { return output.name == role.name; };
    if (llvm::none_of(ir::kSequenceRoles, isOutput)) out.setOutput(std::move(output));
  }
  return out;
}

} // namespace attnc::passes
