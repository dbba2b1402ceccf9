#include "xla/frame.h"

#include "support/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace attnc::xla {
namespace {

Error wrong(std::string message) {
  return Error::environment("a custom call of attnc " + std::move(message),
                            "attnc/c/xla.h says what a call consists of");
}

/// Returns the item of an attribute; null if it is missing or of another kind.
const void* find(const ffi::Attributes& attributes, std::string_view name, int kind) {
  for (int64_t i = 0; i < attributes.count; ++i)
    if (std::string_view(attributes.names[i]->data, attributes.names[i]->length) == name)
      return attributes.kinds[i] == kind ? attributes.items[i] : nullptr;
  return nullptr;
}

std::optional<std::string> textOf(const ffi::Attributes& attributes, std::string_view name) {
  const auto* text = static_cast<const ffi::Text*>(find(attributes, name, ffi::kText));
  if (!text) return {};
  return std::string(text->data, text->length);
}

std::vector<std::string> namesIn(std::string_view text) {
  std::vector<std::string> names;
  for (size_t end; (end = text.find(' ')) != text.npos; text.remove_prefix(end + 1))
    names.emplace_back(text.substr(0, end));
  return names;
}

/// Converts a number of XLA's PrimitiveType; ATTNC_DTYPE_DEFAULT for types that attnc does not have.
attnc_dtype dtypeOf(int type) {
  switch (type) {
  case ffi::kPred: return ATTNC_DTYPE_BOOL;
  case ffi::kS8: return ATTNC_DTYPE_I8;
  case ffi::kS16: return ATTNC_DTYPE_I16;
  case ffi::kS32: return ATTNC_DTYPE_I32;
  case ffi::kS64: return ATTNC_DTYPE_I64;
  case ffi::kU8: return ATTNC_DTYPE_U8;
  case ffi::kF16: return ATTNC_DTYPE_F16;
  case ffi::kF32: return ATTNC_DTYPE_F32;
  case ffi::kBf16: return ATTNC_DTYPE_BF16;
  }
  return ATTNC_DTYPE_DEFAULT;
}

Expected<std::vector<attnc_tensor>> tensorsOf(const ffi::Buffers& buffers, std::string_view what) {
  std::vector<attnc_tensor> tensors;
  for (int64_t i = 0; i < buffers.count; ++i) {
    if (buffers.kinds[i] != ffi::kBuffer) return wrong(fmt::format("has {} {}, which is no array", what, i));
    const auto& buffer = *static_cast<const ffi::Buffer*>(buffers.items[i]);
    attnc_tensor tensor = {};
    tensor.struct_size = sizeof tensor;
    tensor.data = buffer.data;
    tensor.dtype = dtypeOf(buffer.dtype);
    if (tensor.dtype == ATTNC_DTYPE_DEFAULT || buffer.rank > ATTNC_MAX_RANK)
      return wrong(fmt::format("has {} {} of XLA's type {} and {} axes", what, i, buffer.dtype, buffer.rank));
    tensor.rank = int32_t(buffer.rank);
    std::copy_n(buffer.extents, buffer.rank, tensor.shape);
    if (attnc_tensor_make_dense(&tensor)) return wrong(attnc_last_error());
    tensors.push_back(tensor);
  }
  return tensors;
}

} // namespace

Expected<Frame> Frame::read(const ffi::CallFrame& frame) {
  Frame made;
  const std::optional<std::string> mod = textOf(frame.attributes, "mod"),
                                   captures = textOf(frame.attributes, "captures"),
                                   gradients = textOf(frame.attributes, "gradients"),
                                   tangents = textOf(frame.attributes, "tangents"),
                                   outputs = textOf(frame.attributes, "outputs");
  const auto* scale = static_cast<const ffi::Scalar*>(find(frame.attributes, "scale", ffi::kScalar));
  if (!mod || !captures || !scale || scale->dtype != ffi::kF32)
    return wrong("lacks one of the attributes `mod`, `captures` (strings) and `scale` (f32)");
  made.mod = *mod;
  made.captures = namesIn(*captures);
  made.hasGradients = gradients.has_value(), made.hasTangents = tangents.has_value();
  made.isBackward = made.hasGradients || made.hasTangents;
  if (made.isBackward && outputs) return wrong("has the attribute `outputs`, and is no forward pass");
  made.gradients = namesIn(gradients.value_or(""));
  made.reductions = namesIn(outputs.value_or(""));
  std::memcpy(&made.scale, scale->value, sizeof made.scale);
  ATTNC_TRY_AS(operands, tensorsOf(frame.operands, "operand"));
  ATTNC_TRY_AS(results, tensorsOf(frame.results, "result"));

  const size_t least = (made.isBackward ? 6 : 3) + (made.hasTangents ? 3 : 0) + made.captures.size();
  made.hasLseGradient = made.isBackward && operands->size() == least + 1;
  if (operands->size() != least + made.hasLseGradient)
    return wrong(fmt::format("has {} operands, it needs {}", operands->size(), least));
  const size_t outcomes = (made.hasTangents || !made.isBackward ? 2 : 0) + made.reductions.size() +
                          (made.hasGradients ? 3 + made.gradients.size() : 0);
  if (results->size() != outcomes && results->size() != outcomes + 1)
    return wrong(fmt::format("has {} results, it needs {} and a workspace", results->size(), outcomes));
  if (results->size() > outcomes) {
    const attnc_tensor& space = results->back();
    if (space.dtype != ATTNC_DTYPE_U8 || space.rank != 1) return wrong("has a workspace that is not u8 [bytes]");
    made.workspace = space.data;
    made.workspaceBytes = size_t(space.shape[0]);
    results->pop_back();
  }
  made.operands = *std::move(operands);
  made.results = *std::move(results);
  return made;
}

std::string Frame::key() const {
  std::string key = mod;
  const auto add = [&key](auto number) { key.append(reinterpret_cast<const char*>(&number), sizeof number); };
  add(hasGradients), add(hasTangents);
  for (const auto* names : {&captures, &gradients, &reductions}) {
    add(names->size());
    for (const std::string& name : *names) key.append(name).push_back('\0');
  }
  for (const auto* tensors : {&operands, &results}) {
    add(tensors->size());
    for (const attnc_tensor& tensor : *tensors) {
      add(tensor.dtype), add(tensor.rank);
      for (int32_t axis = 0; axis < tensor.rank; ++axis) add(tensor.shape[axis]);
    }
  }
  return key;
}

void Frame::fill(Structs& to) const {
  to = {};
  to.operands.struct_size = sizeof to.operands;
  to.outputs.struct_size = sizeof to.outputs;
  to.backwardOperands.struct_size = sizeof to.backwardOperands;
  to.backwardOutputs.struct_size = sizeof to.backwardOutputs;
  const auto capture = [](const std::string& name, const attnc_tensor& tensor) {
    attnc_capture made = {};
    made.struct_size = sizeof made;
    made.name = name.c_str();
    made.tensor = &tensor;
    made.kind = ATTNC_CAPTURE_TENSOR;
    return made;
  };
  const size_t first = operands.size() - captures.size();
  for (size_t i = 0; i < captures.size(); ++i) to.captures.push_back(capture(captures[i], operands[first + i]));
  to.operands.q = &operands[0], to.operands.k = &operands[1], to.operands.v = &operands[2];
  to.operands.captures = to.captures.data(), to.operands.capture_count = to.captures.size();
  to.operands.scale = scale, to.operands.has_scale = 1;
  if (!isBackward) {
    to.outputs.out = &results[0], to.outputs.lse = &results[1];
    for (size_t i = 0; i < reductions.size(); ++i) to.reductions.push_back(capture(reductions[i], results[2 + i]));
    to.outputs.reductions = to.reductions.data(), to.outputs.reduction_count = to.reductions.size();
    return;
  }
  to.outputs.out = &operands[3], to.outputs.lse = &operands[4];
  attnc_backward_operands& backward = to.backwardOperands;
  backward.forward = &to.operands;
  backward.out = &operands[3], backward.lse = &operands[4], backward.dout = &operands[5];
  backward.dlse = hasLseGradient ? &operands[6] : nullptr;
  const attnc_tensor* result = results.data();
  if (hasTangents) {
    const attnc_tensor* directions = &operands[6 + hasLseGradient];
    backward.q_tangent = &directions[0], backward.k_tangent = &directions[1], backward.v_tangent = &directions[2];
    to.backwardOutputs.out_tangent = result++, to.backwardOutputs.lse_tangent = result++;
  }
  if (!hasGradients) return;
  to.backwardOutputs.dq = result++, to.backwardOutputs.dk = result++, to.backwardOutputs.dv = result++;
  for (const std::string& name : gradients) to.gradients.push_back(capture(name, *result++));
  to.backwardOutputs.captures = to.gradients.data(), to.backwardOutputs.capture_count = to.gradients.size();
}

} // namespace attnc::xla
