#include "attnc/c/prepared.h"

#include "c/enumerators.h"
#include "c/handles.h"
#include "c/kernel_options.h"
#include "c/operands.h"
#include "c/tell.h"
#include "support/try.h"

using namespace attnc;
using namespace attnc::c;

attnc_status attnc_settle(const attnc_compiler* compiler, const attnc_mod* mod, const attnc_operands* operands,
                          const attnc_outputs* outputs, const attnc_prepare_options* options,
                          attnc_preparation** preparation) {
  return call({{compiler, "compiler"}, {mod, "mod"}, {preparation, "preparation"}}, [&] {
    const PrepareOptions how = readPrepareOptions(options);
    const GivenForward given(operands, outputs);
    return give(compiler->compiler.settle(mod->mod, given.operands, given.outputs, how), preparation);
  });
}

attnc_status attnc_settle_training(const attnc_compiler* compiler, const attnc_mod* mod,
                                   const attnc_backward_operands* operands, const attnc_outputs* outputs,
                                   const attnc_backward_outputs* gradients, const attnc_prepare_options* options,
                                   attnc_preparation** preparation) {
  return call({{compiler, "compiler"}, {mod, "mod"}, {preparation, "preparation"}}, [&] {
    const PrepareOptions how = readPrepareOptions(options);
    const GivenBackward given(operands, gradients);
    Captures reductions;
    const Outputs written = readOutputs(outputs, "outputs", reductions);
    return give(compiler->compiler.settleTraining(mod->mod, given.operands, written, given.outputs, how), preparation);
  });
}

void attnc_preparation_destroy(attnc_preparation* preparation) { delete preparation; }

attnc_status attnc_preparation_get_info(const attnc_preparation* preparation, attnc_preparation_info* info) {
  return tell({{preparation, "preparation"}}, info, "info", [&](attnc_preparation_info& all) {
    const Preparation& from = preparation->preparation;
    all.workspace_bytes = from.workspaceBytes;
    all.problem = toC(from.problem);
    if (from.blockMask && !from.blockMask->boxes) all.block_mask = toC(*from.blockMask);
    all.why_kind = from.whyKind.c_str();
    all.is_training = from.backward.has_value();
    all.builds_block_mask = from.blockMask.has_value();
  });
}

size_t attnc_preparation_plan_count(const attnc_preparation* preparation) {
  return preparation ? preparation->plans.size() : 0;
}

const attnc_plan* attnc_preparation_get_plan(const attnc_preparation* preparation, size_t index) {
  return index < attnc_preparation_plan_count(preparation) ? preparation->plans[index].get() : nullptr;
}

const char* attnc_preparation_text(const attnc_preparation* preparation) {
  return given(preparation, "preparation") ? preparation->text.c_str() : nullptr;
}

attnc_status attnc_explain(const attnc_compiler* compiler, const attnc_preparation* preparation,
                           const attnc_capture* captures, size_t capture_count, const char** json) {
  const std::initializer_list<Needed> needed = {{compiler, "compiler"}, {preparation, "preparation"}, {json, "json"}};
  return call(needed, [&]() -> Status {
    Captures given;
    readCaptures(captures, capture_count, "captures", given);
    ATTNC_TRY_AS(explanation, explain(compiler->compiler, preparation->preparation, given));
    *json = preparation->explanations.keep(toJson(*explanation));
    return {};
  });
}

attnc_status attnc_prepare(const attnc_compiler* compiler, const attnc_mod* mod, const attnc_operands* operands,
                           const attnc_outputs* outputs, const attnc_prepare_options* options,
                           attnc_prepared** prepared) {
  return call({{compiler, "compiler"}, {mod, "mod"}, {prepared, "prepared"}}, [&] {
    const PrepareOptions how = readPrepareOptions(options);
    const GivenForward given(operands, outputs);
    return give(compiler->compiler.prepare(mod->mod, given.operands, given.outputs, how), prepared);
  });
}

attnc_status attnc_prepare_training(const attnc_compiler* compiler, const attnc_mod* mod,
                                    const attnc_backward_operands* operands, const attnc_outputs* outputs,
                                    const attnc_backward_outputs* gradients, const attnc_prepare_options* options,
                                    attnc_prepared** prepared) {
  return call({{compiler, "compiler"}, {mod, "mod"}, {prepared, "prepared"}}, [&] {
    const PrepareOptions how = readPrepareOptions(options);
    const GivenBackward given(operands, gradients);
    Captures reductions;
    const Outputs written = readOutputs(outputs, "outputs", reductions);
    return give(compiler->compiler.prepareTraining(mod->mod, given.operands, written, given.outputs, how), prepared);
  });
}

void attnc_prepared_destroy(attnc_prepared* prepared) { delete prepared; }

const attnc_preparation* attnc_prepared_get_preparation(const attnc_prepared* prepared) {
  return given(prepared, "prepared") ? &prepared->preparation : nullptr;
}

attnc_status attnc_prepared_workspace_bytes(const attnc_prepared* prepared, size_t* bytes) {
  return call({{prepared, "prepared"}, {bytes, "bytes"}}, [&]() -> Status {
    *bytes = prepared->prepared.workspaceBytes();
    return {};
  });
}

attnc_status attnc_prepared_initialise(const attnc_prepared* prepared, const attnc_operands* operands, void* workspace,
                                       attnc_stream stream) {
  return call({{prepared, "prepared"}}, [&]() -> Status {
    GivenOperands given;
    Operands all;
    given.read(operands, "operands", all);
    return prepared->prepared.initialise(all, workspace, static_cast<Stream>(stream));
  });
}

attnc_status attnc_prepared_launch(const attnc_prepared* prepared, const attnc_operands* operands,
                                   const attnc_outputs* outputs, void* workspace, attnc_stream stream) {
  return call({{prepared, "prepared"}}, [&]() -> Status {
    const GivenForward given(operands, outputs);
    return prepared->prepared.launch(given.operands, given.outputs, workspace, static_cast<Stream>(stream));
  });
}

attnc_status attnc_prepared_launch_backward(const attnc_prepared* prepared, const attnc_backward_operands* operands,
                                            const attnc_backward_outputs* outputs, void* workspace,
                                            attnc_stream stream) {
  return call({{prepared, "prepared"}}, [&]() -> Status {
    const GivenBackward given(operands, outputs);
    return prepared->prepared.launchBackward(given.operands, given.outputs, workspace, static_cast<Stream>(stream));
  });
}

attnc_status attnc_prepared_block_mask_in(const attnc_prepared* prepared, void* workspace,
                                          attnc_block_mask_view* view) {
  return call({{prepared, "prepared"}, {workspace, "workspace"}}, [&]() -> Status {
    if (!prepared->prepared.preparation().blockMask)
      return Error::environment("no block mask is built in the workspace");
    if (prepared->prepared.preparation().blockMask->boxes)
      return Error::environment(
          "blocks of the mask in the workspace are boxes, which attnc_block_mask_view has no room for");
    writeStruct(toC(prepared->prepared.blockMaskIn(workspace)), view, "view");
    return {};
  });
}
