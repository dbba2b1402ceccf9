#include "attnc/c/xla.h"

#include "support/try.h"
#include "xla/launches.h"

#include <fmt/format.h>

#include <exception>

namespace attnc::xla {
namespace {

/// Fills the metadata that XLA asks a handler for. Returns whether it asked.
bool describe(const ffi::CallFrame& frame) {
  for (const ffi::Extension* found = frame.extension; found; found = found->next)
    if (found->type == ffi::kMetadataExtension) {
      ffi::Metadata& metadata = *reinterpret_cast<const ffi::MetadataExtension*>(found)->metadata;
      metadata.version.major = ffi::kMajorVersion;
      metadata.version.minor = ffi::kMinorVersion;
      metadata.traits = ffi::kCommandBufferCompatible;
      return true;
    }
  return false;
}

XLA_FFI_Error* raise(const ffi::CallFrame& frame, const Error& error) {
  const std::string text = error.remedy.empty() ? error.message : error.message + ": " + error.remedy;
  ffi::ErrorArguments arguments = {sizeof arguments, nullptr, text.c_str(), ffi::kInvalidArgument};
  if (error.blame == Blame::Internal) arguments.code = ffi::kInternal;
  return static_cast<XLA_FFI_Error*>(frame.api->makeError(&arguments));
}

Status computeOnCpu(const ffi::CallFrame& frame) {
  ATTNC_TRY_AS(call, Frame::read(frame));
  ATTNC_TRY_AS(mod, modOf(call->mod));
  Frame::Structs structs;
  call->fill(structs);
  const attnc_status status =
      call->isBackward ? attnc_compute_backward_on_cpu(mod->get(), &structs.backwardOperands, &structs.backwardOutputs)
                       : attnc_compute_on_cpu(mod->get(), &structs.operands, &structs.outputs);
  if (status) return lastError();
  return {};
}

Status launchOnCuda(const ffi::CallFrame& frame) {
  if (frame.api->size < sizeof(ffi::Api))
    return Error::environment(
        fmt::format("version {}.{} of XLA's FFI tells no device", frame.api->version.major, frame.api->version.minor),
        "use a newer jaxlib");
  ATTNC_TRY_AS(call, Frame::read(frame));
  // Errors of these two functions do not occur on this platform.
  ffi::OrdinalArguments device = {sizeof device, nullptr, frame.context, 0};
  ffi::StreamArguments queue = {sizeof queue, nullptr, frame.context, nullptr};
  frame.api->getOrdinal(&device);
  ATTNC_TRY_AS(launch, launchOf(*call, device.ordinal));
  if (frame.stage != ffi::Execute) return {};
  if (launch->workspaceBytes > call->workspaceBytes)
    return Error::environment(
        fmt::format("a workspace of {} bytes was given, the kernel needs {}", call->workspaceBytes,
                    launch->workspaceBytes),
        "tiles were tuned since the program was compiled, or it is of another GPU: compile it again");
  frame.api->getStream(&queue);
  Frame::Structs structs;
  call->fill(structs);
  const attnc_prepared* prepared = launch->prepared.get();
  if (launch->workspaceBytes && attnc_prepared_initialise(prepared, &structs.operands, call->workspace, queue.stream))
    return lastError();
  const attnc_status status =
      call->isBackward
          ? attnc_prepared_launch_backward(prepared, &structs.backwardOperands, &structs.backwardOutputs,
                                           call->workspace, queue.stream)
          : attnc_prepared_launch(prepared, &structs.operands, &structs.outputs, call->workspace, queue.stream);
  if (status) return lastError();
  return {};
}

template <class Handle> XLA_FFI_Error* handled(XLA_FFI_CallFrame* given, Handle&& handle) {
  const auto& frame = *reinterpret_cast<const ffi::CallFrame*>(given);
  if (describe(frame)) return nullptr;
  try {
    if (frame.size < sizeof frame || frame.api->version.major != ffi::kMajorVersion)
      return raise(frame, Error::environment(fmt::format("version {}.{} of XLA's FFI is not one that attnc knows",
                                                         frame.api->version.major, frame.api->version.minor),
                                             "use another jaxlib, or a newer attnc"));
    if (const Status status = handle(frame); !status) return raise(frame, status.error());
    return nullptr;
  } catch (const std::exception& exception) { // no memory is left
    return raise(frame, Error{Blame::Internal, exception.what(), {}, {}});
  }
}

} // namespace
} // namespace attnc::xla

using namespace attnc::xla;

void attnc_xla_set_compiler(const attnc_compiler* compiler) { setCompiler(compiler); }

XLA_FFI_Error* attnc_xla_attention_on_cuda(XLA_FFI_CallFrame* frame) { return handled(frame, launchOnCuda); }

XLA_FFI_Error* attnc_xla_attention_on_cpu(XLA_FFI_CallFrame* frame) { return handled(frame, computeOnCpu); }
