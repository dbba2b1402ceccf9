#include "families/two_walks.h"

#include <llvm/ADT/STLExtras.h>

#include <algorithm>

namespace attnc::plan {
namespace {

TensorView lseOf(const LaunchOperands& operands, void* data) {
  const auto& q = operands.q.shape; // that of packed rows in a ragged batch
  return TensorView::contiguous(data, DType::F32, {q[0], q[1], q[2]});
}

/// Returns a stage's parameters, of a launch that `change` was applied to.
template <class Change> MakeParameters changed(MakeParameters parameters, Change change) {
  return [=](const Stage& stage, const LaunchOperands& given, const Device& device, const WorkspaceView& workspace) {
    LaunchOperands operands = given;
    change(operands, workspace);
    return parameters(stage, operands, device, workspace);
  };
}

} // namespace

Request ofSecondWalk(Request request) {
  request.mod = request.mod->secondWalk;
  request.options.features.set(Feature::RowMax, false);
  return request;
}

void addSecondWalk(Plan& plan, const Request& request) {
  if (!request.mod->secondWalk) return;
  const auto readsLse = [](LaunchOperands& operands, const WorkspaceView& workspace) {
    if (!operands.lse) operands.lse = static_cast<float*>(workspace.at(Use::Lse));
  };
  for (Stage& stage : plan.stages) stage.parameters = changed(std::move(stage.parameters), readsLse);
  Plan second = request.family->plan(ofSecondWalk(request));
  for (Stage& stage : second.stages) {
    stage.walksSecond = true;
    stage.parameters = changed(std::move(stage.parameters), [](LaunchOperands& operands, const WorkspaceView&) {
      operands.lse = operands.rowMax = nullptr; // they are of the softmax
    });
    plan.stages.push_back(std::move(stage));
  }
  second.workspace.push_back({.use = Use::Lse, .bytes = [](const LaunchOperands& operands) {
                                return size_t(lseOf(operands, nullptr).elements()) * sizeof(float);
                              }});
  for (WorkspaceUse& use : second.workspace) {
    const auto own = llvm::find_if(plan.workspace, [&](const WorkspaceUse& other) { return other.use == use.use; });
    if (own == plan.workspace.end()) {
      plan.workspace.push_back(std::move(use));
      continue;
    }
    own->bytes = [first = std::move(own->bytes), second = std::move(use.bytes)](const LaunchOperands& operands) {
      return std::max(first(operands), second(operands)); // their tiles may differ
    };
    own->isOptional &= use.isOptional;
  }
  plan.bindsLse = true;
}

void bindLse(const Plan& plan, ir::Bindings& bindings, const LaunchOperands& operands, const WorkspaceView& workspace) {
  if (!plan.bindsLse) return;
  bindings.tensors.push_back(lseOf(operands, operands.lse ? operands.lse : workspace.at(Use::Lse)));
  bindings.dims.push_back(operands.q.shape[2]); // only modules of ragged batches declare it
}

} // namespace attnc::plan
