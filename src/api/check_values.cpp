#include "api/check_values.h"

#include "analysis/intervals.h"
#include "ir/bind.h"
#include "ir/interpreter.h"
#include "ir/walk.h"
#include "jit/measure.h"
#include "launch/launch_operands.h"
#include "launch/mask_shape.h"
#include "reference/operand_values.h"
#include "reference/sequences.h"
#include "support/try.h"

#include <fmt/format.h>

#include <llvm/ADT/STLExtras.h>

#include <algorithm>
#include <cstdio>
#include <deque>

namespace attnc {
namespace {

using ir::ParamKind;

/// Evaluations of one index that take about a second.
constexpr int64_t kMostPositions = int64_t(1) << 24;

const Captures& givenCaptures(const Operands& operands) {
  static const Captures kNone;
  return operands.captures ? *operands.captures : kNone;
}

/// An index of a gather that comes from a captured tensor.
struct CapturedIndex {
  ir::Value load, index;
  unsigned axis;
  std::vector<bool> needed; ///< by Value::id
};

bool choosesMods(const ir::TensorCapture& tensor) { return tensor.choices != 0; }

/// Returns the indices that are not proven to lie inside.
std::vector<CapturedIndex> capturedIndices(const ir::Module& module) {
  std::vector<CapturedIndex> found;
  const std::vector<bool> needed = ir::neededByOutputs(module);
  analysis::Intervals intervals(module);
  for (uint32_t id = 0; id < module.size(); ++id)
    for (unsigned axis = 0; needed[id] && module[{id}].op == ir::Op::Load && axis < module[{id}].operands.size();
         ++axis) {
      const ir::Value index = module[{id}].operands[axis];
      CapturedIndex one{{id}, index, axis, ir::neededBy(module, index)};
      bool isCaptured = false;
      for (uint32_t of = 0; of <= index.id; ++of) isCaptured |= one.needed[of] && module[{of}].op == ir::Op::Load;
      if (isCaptured && !intervals.provesInside({id}, axis)) found.push_back(std::move(one));
    }
  return found;
}

/// Checks one index at all positions that it depends on.
class IndexCheck {
public:
  IndexCheck(const ir::Module& module, const ir::Bindings& bindings, const ProblemShape& problem,
             const reference::Sequences& sequences)
      : module(module), bindings(bindings), problem(problem), sequences(sequences) {}

  Status check(const CapturedIndex& of) const {
    const ir::TensorCapture& tensor = module.tensors[module[of.load].attr];
    const int64_t extent = bindings.tensors[module[of.load].attr].shape[of.axis];
    const ir::ParamSet params = ir::paramsOf(module, of.index);
    const bool hasQ = params.contains(ParamKind::QIdx), hasKv = params.contains(ParamKind::KvIdx);
    const bool hasB = hasQ || hasKv || params.contains(ParamKind::B), hasH = params.contains(ParamKind::H);
    const int64_t batch = hasB ? problem.batch : 1, heads = hasH ? problem.qHeads : 1;
    int64_t positions = 0;
    for (int64_t b = 0; b < batch; ++b)
      positions += heads * (hasQ ? sequences[b].qLength : 1) * (hasKv ? sequences[b].kvLength : 1);
    bool isOpen =
        params.contains(ParamKind::Score) || params.contains(ParamKind::Grad) || params.contains(ParamKind::Prob);
    for (uint32_t id = 0; id <= of.index.id; ++id) isOpen |= of.needed[id] && module[{id}].op == ir::Op::Iter;
    if (isOpen || positions > kMostPositions) {
      std::fputs(fmt::format("attnc: check: reads of capture '{}' are not checked along axis {}: {}\n", tensor.name,
                             of.axis,
                             isOpen ? "the index is that of a sum, or of a score"
                                    : fmt::format("there are {} positions", positions))
                     .c_str(),
                 stderr);
      return {};
    }
    const ir::Evaluator evaluator(module, bindings, of.index);
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t row = 0; row < (hasQ ? sequences[b].qLength : 1); ++row)
          for (int64_t kv = 0; kv < (hasKv ? sequences[b].kvLength : 1); ++kv) {
            const int64_t q = hasQ ? sequences[b].qOffset + row : 0;
            const int64_t index = evaluator.evaluate(0, b, h, q, kv).integer;
            if (index >= 0 && index < extent) continue;
            std::string place;
            for (auto [isPart, name, at] :
                 {std::tuple(hasB, "b", b), {hasH, "h", h}, {hasQ, "q_idx", q}, {hasKv, "kv_idx", kv}})
              if (isPart) place += fmt::format("{}{} = {}", place.empty() ? " at " : ", ", name, at);
            return Error::environment(fmt::format("capture '{}' is read at index {} along axis {}, of {} entries{}",
                                                  tensor.name, index, of.axis, extent, place),
                                      "kernels read the nearest entry inside: correct the captured index, or clamp it");
          }
    return {};
  }

private:
  const ir::Module& module;
  const ir::Bindings& bindings;
  const ProblemShape& problem;
  const reference::Sequences& sequences;
};

/// Copies of device memory, which live as long as this.
class HostCopies {
public:
  explicit HostCopies(Stream stream) : stream(stream) {}

  Status copy(std::optional<TensorView>& tensor) { return tensor ? copy(*tensor) : Status(); }

  /// Makes the view one of a copy of its memory.
  Status copy(TensorView& tensor) {
    int64_t first = 0, last = 0; // in elements
    for (int axis = 0; axis < tensor.rank; ++axis)
      (tensor.stride[axis] < 0 ? first : last) += tensor.stride[axis] * std::max<int64_t>(tensor.shape[axis] - 1, 0);
    if (!tensor.elements()) return {};
    const int64_t bytes = dtypeBytes(tensor.dtype);
    ATTNC_TRY_AS(data, copied(static_cast<const char*>(tensor.data) + first * bytes, (last - first + 1) * bytes));
    tensor.data = *data - first * bytes;
    return {};
  }

  /// Copies the lists of an axis: `count` lists.
  template <class Lists> Status copy(Lists& lists, int64_t count) {
    for (int32_t** list : {&lists.partialCount, &lists.partialIndex, &lists.fullCount, &lists.fullIndex}) {
      const bool isIndex = list == &lists.partialIndex || list == &lists.fullIndex;
      if (!*list) continue;
      ATTNC_TRY_AS(data, copied(*list, int64_t(sizeof(int32_t)) * count * (isIndex ? lists.indexStride : 1)));
      *list = reinterpret_cast<int32_t*>(*data);
    }
    return {};
  }

private:
  Expected<char*> copied(const void* from, int64_t bytes) {
    std::vector<char>& to = memory.emplace_back(size_t(bytes));
    ATTNC_TRY(jit::bringBack(to.data(), from, to.size(), stream));
    return to.data();
  }

  Stream stream;
  std::deque<std::vector<char>> memory;
};

} // namespace

bool asksForChecks(const jit::Env& env) { return !env.check.empty() && env.check != "0"; }

Status checkValues(const Operands& operands, KernelKind kind) {
  ATTNC_TRY(reference::checkValues(operands));
  if (!operands.blockMask) return {};
  BlockMaskView lists = *operands.blockMask;
  ATTNC_TRY(plan::checkServes(lists.shape, plan::problemOf(operands), operands.cuSeqlensQ.has_value()));
  if (kind != KernelKind::Backward) lists.columns = {};
  const bool hasLists = lists.shape.batch > 0 && lists.shape.heads > 0;
  if (hasLists) ATTNC_TRY(BlockMask::fromLists(lists));
  return {};
}

Status checkGathers(const ir::Module& module, const Operands& operands) {
  const std::vector<CapturedIndex> indices = capturedIndices(module);
  if (indices.empty() && llvm::none_of(module.tensors, choosesMods)) return {};
  const ProblemShape problem = plan::problemOf(operands);
  ATTNC_TRY_AS(bindings, ir::bindOnHost(module, givenCaptures(operands), problem, &operands));
  const reference::Sequences sequences(module, *bindings, problem, operands);
  const IndexCheck check(module, *bindings, problem, sequences);
  for (const CapturedIndex& index : indices) ATTNC_TRY(check.check(index));
  return {};
}

Status checkOnDevice(const ir::Module& module, const Operands& operands, KernelKind kind, Stream stream) {
  ATTNC_TRY_AS(isCaptured, jit::isCaptured(stream));
  if (*isCaptured)
    return Error::environment("a launch that checks its operands waits, and its stream is captured into a graph",
                              "launch once before the capture with ATTNC_CHECK or PrepareOptions::check, and capture "
                              "without");
  HostCopies copies(stream);
  Operands host = operands;
  for (auto* tensor : {&host.kvLengths, &host.qOffsets, &host.pageTable, &host.cuSeqlensQ, &host.cuSeqlensKv,
                       &host.qScales, &host.kScales, &host.vScales})
    ATTNC_TRY(copies.copy(*tensor));
  BlockMaskView lists;
  if (operands.blockMask) {
    host.blockMask = &(lists = *operands.blockMask);
    const BlockMaskShape& shape = lists.shape;
    ATTNC_TRY(copies.copy(lists, shape.batch * shape.heads * shape.qBlocks()));
    ATTNC_TRY(copies.copy(lists.columns, shape.batch * shape.heads * shape.kvBlocks()));
  }
  ATTNC_TRY(checkValues(host, kind));
  std::vector<bool> isRead; // by tensor
  for (const ir::TensorCapture& tensor : module.tensors) isRead.push_back(choosesMods(tensor));
  for (const CapturedIndex& index : capturedIndices(module))
    for (uint32_t id = 0; id <= index.index.id; ++id)
      if (index.needed[id] && module[{id}].op == ir::Op::Load) isRead[size_t(module[{id}].attr)] = true;
  Captures captures = givenCaptures(operands);
  for (size_t i = 0; i < isRead.size(); ++i) {
    const std::string& name = module.tensors[i].name;
    const Captures::Item* given = isRead[i] ? givenCaptures(operands).find(name) : nullptr;
    TensorView view;
    if (const auto* tensor = given ? std::get_if<TensorView>(given) : nullptr) view = *tensor;
    if (!view.data) continue; // of sequences
    ATTNC_TRY(copies.copy(view));
    captures.set(name, view);
  }
  host.captures = &captures;
  return checkGathers(module, host);
}

Status checkZeros(const plan::WorkspaceView& workspace, Stream stream) {
  for (const plan::WorkspacePart& part : workspace.layout.parts()) {
    if (!workspace.memory || part.use.zeroed != plan::WorkspaceUse::Zeroed::Once) continue;
    std::vector<char> bytes(part.bytes);
    ATTNC_TRY(jit::bringBack(bytes.data(), workspace.at(part.use.use), bytes.size(), stream));
    if (llvm::any_of(bytes, [](char byte) { return byte != 0; }))
      return Error::environment("the counters of the workspace are not 0: a launch was stopped, other work wrote "
                                "there, or the workspace was never initialised",
                                "initialise it; a launch would leave out tiles");
  }
  return {};
}

} // namespace attnc
