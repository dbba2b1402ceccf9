#include "attnc/c/tuning.h"

#include "c/handles.h"
#include "c/kernel_options.h"
#include "c/operands.h"
#include "c/tell.h"

namespace attnc::c {
namespace {

/// Null if the pass was not measured, or if it is not a pass.
const TunedKernel* tunedPass(const attnc_tuning& tuning, attnc_pass pass) {
  if (pass == ATTNC_PASS_FORWARD) return &tuning.tuning.forward;
  const auto& backward = tuning.tuning.backward;
  return pass == ATTNC_PASS_BACKWARD && backward ? &*backward : nullptr;
}

} // namespace
} // namespace attnc::c

using namespace attnc;
using namespace attnc::c;

attnc_status attnc_tune(const attnc_compiler* compiler, const attnc_mod* mod, const attnc_operands* operands,
                        const attnc_outputs* outputs, const attnc_prepare_options* options, attnc_stream stream,
                        attnc_tuning** tuning) {
  return call({{compiler, "compiler"}, {mod, "mod"}, {tuning, "tuning"}}, [&] {
    const PrepareOptions how = readPrepareOptions(options);
    const GivenForward given(operands, outputs);
    return give(compiler->compiler.tune(mod->mod, given.operands, given.outputs, how, static_cast<Stream>(stream)),
                tuning);
  });
}

attnc_status attnc_tune_training(const attnc_compiler* compiler, const attnc_mod* mod,
                                 const attnc_backward_operands* operands, const attnc_outputs* outputs,
                                 const attnc_backward_outputs* gradients, const attnc_prepare_options* options,
                                 attnc_stream stream, attnc_tuning** tuning) {
  return call({{compiler, "compiler"}, {mod, "mod"}, {tuning, "tuning"}}, [&] {
    const PrepareOptions how = readPrepareOptions(options);
    const GivenBackward given(operands, gradients);
    Captures reductions;
    const Outputs written = readOutputs(outputs, "outputs", reductions);
    return give(compiler->compiler.tuneTraining(mod->mod, given.operands, written, given.outputs, how,
                                                static_cast<Stream>(stream)),
                tuning);
  });
}

void attnc_tuning_destroy(attnc_tuning* tuning) { delete tuning; }

const attnc_preparation* attnc_tuning_get_preparation(const attnc_tuning* tuning) {
  return given(tuning, "tuning") ? &tuning->preparation : nullptr;
}

size_t attnc_tuning_tile_count(const attnc_tuning* tuning, attnc_pass pass) {
  const TunedKernel* kernel = tuning ? tunedPass(*tuning, pass) : nullptr;
  return kernel ? kernel->tiles.size() : 0;
}

attnc_status attnc_tuning_get_tile(const attnc_tuning* tuning, attnc_pass pass, size_t index, attnc_tuned_tile* tile) {
  return tell({{tuning, "tuning"}}, tile, "tile", [&](attnc_tuned_tile& all) {
    checkIndex(index, attnc_tuning_tile_count(tuning, pass));
    const TunedTile& from = tunedPass(*tuning, pass)->tiles[index];
    all.tile = from.tile.c_str();
    all.passed_over = from.passedOver.c_str();
    all.ms = from.ms;
    all.is_winner = from.isWinner;
  });
}
