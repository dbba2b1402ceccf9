#include "attnc/c/kernel.h"

#include "c/enumerators.h"
#include "c/handles.h"
#include "c/operands.h"
#include "c/tell.h"

namespace attnc::c {
namespace {

template <class Kernel> Expected<attnc_kernel::Any> anyKernel(Expected<Kernel> kernel) {
  if (!kernel) return std::move(kernel).error();
  return attnc_kernel::Any(*std::move(kernel));
}

Expected<attnc_kernel::Any> loadKernel(const Compiler& compiler, const Plan& plan) {
  switch (plan.options().kind) {
  case KernelKind::Forward:
  case KernelKind::Decode: return anyKernel(compiler.loadForward(plan));
  case KernelKind::Backward: return anyKernel(compiler.loadBackward(plan));
  case KernelKind::BlockMask:
    return Error::environment("a block mask kernel is loaded only by attnc_prepare()",
                              "see attnc_prepared_get_kernel()");
  }
  return Error::internal("a kind of kernel that nothing loads");
}

/// Returns the kernel. Refuses one of another kind.
template <class Kernel> const Kernel& kernelAs(const attnc_kernel* handle, const char* kind) {
  need(handle, "kernel");
  const auto* kernel = std::get_if<Kernel>(&handle->kernel);
  if (!kernel) refuse("kernel", std::string("is no ") + kind + " kernel");
  return *kernel;
}

Stream toStream(attnc_stream stream) { return static_cast<Stream>(stream); }

Status giveBytes(Expected<size_t> counted, size_t* bytes) {
  if (!counted) return std::move(counted).error();
  *bytes = *counted;
  return {};
}

} // namespace
} // namespace attnc::c

using namespace attnc;
using namespace attnc::c;

attnc_status attnc_kernel_load(const attnc_compiler* compiler, const attnc_plan* plan, attnc_kernel** kernel) {
  return call({{compiler, "compiler"}, {plan, "plan"}, {kernel, "kernel"}},
              [&] { return give(loadKernel(compiler->compiler, plan->plan), kernel); });
}

void attnc_kernel_destroy(attnc_kernel* kernel) { delete kernel; }

attnc_status attnc_kernel_get_options(const attnc_kernel* kernel, attnc_kernel_options* options) {
  return tell({{kernel, "kernel"}}, options, "options",
              [&](attnc_kernel_options& all) { all = kernel->options.view(); });
}

const attnc_compiled* attnc_kernel_get_compiled(const attnc_kernel* kernel) {
  return given(kernel, "kernel") ? &kernel->compiled : nullptr;
}

attnc_status attnc_kernel_workspace_bytes(const attnc_kernel* kernel, const attnc_operands* operands,
                                          const attnc_outputs* outputs, size_t* bytes) {
  return call({{bytes, "bytes"}}, [&]() -> Status {
    const auto& forward = kernelAs<ForwardKernel>(kernel, "forward");
    const GivenForward given(operands, outputs);
    return giveBytes(forward.workspaceBytes(given.operands, given.outputs), bytes);
  });
}

attnc_status attnc_kernel_backward_workspace_bytes(const attnc_kernel* kernel, const attnc_backward_operands* operands,
                                                   const attnc_backward_outputs* outputs, size_t* bytes) {
  return call({{bytes, "bytes"}}, [&]() -> Status {
    const auto& backward = kernelAs<BackwardKernel>(kernel, "backward");
    const GivenBackward given(operands, outputs, /*optionalOutputs=*/true);
    return giveBytes(backward.workspaceBytes(given.operands, given.outputs), bytes);
  });
}

attnc_status attnc_kernel_launch(const attnc_kernel* kernel, const attnc_operands* operands,
                                 const attnc_outputs* outputs, void* workspace, attnc_stream stream) {
  return call({}, [&]() -> Status {
    const auto& forward = kernelAs<ForwardKernel>(kernel, "forward");
    const GivenForward given(operands, outputs);
    return forward.launch(given.operands, given.outputs, workspace, toStream(stream));
  });
}

attnc_status attnc_kernel_launch_backward(const attnc_kernel* kernel, const attnc_backward_operands* operands,
                                          const attnc_backward_outputs* outputs, void* workspace, attnc_stream stream) {
  return call({}, [&]() -> Status {
    const auto& backward = kernelAs<BackwardKernel>(kernel, "backward");
    const GivenBackward given(operands, outputs);
    return backward.launch(given.operands, given.outputs, workspace, toStream(stream));
  });
}

attnc_status attnc_kernel_launch_block_mask(const attnc_kernel* kernel, const attnc_block_mask_view* mask,
                                            const attnc_problem* problem, const attnc_capture* captures,
                                            size_t capture_count, attnc_stream stream) {
  return call({{mask, "mask"}, {problem, "problem"}}, [&]() -> Status {
    const auto& builder = kernelAs<BlockMaskKernel>(kernel, "block mask");
    const std::optional<BlockMaskView> lists = readLists(mask, "mask");
    Captures values;
    readCaptures(captures, capture_count, "captures", values);
    return builder.launch(*lists, readProblem(*problem), values, toStream(stream));
  });
}
