#include "attnc/c/reference.h"

#include "c/call.h"
#include "c/handles.h"
#include "c/operands.h"

using namespace attnc;
using namespace attnc::c;

attnc_status attnc_compute_on_cpu(const attnc_mod* mod, const attnc_operands* operands, const attnc_outputs* outputs) {
  return call({{mod, "mod"}}, [&](Arguments& arguments) -> Status {
    const GivenForward given(arguments, operands, outputs);
    if (!arguments.ok()) return {};
    return computeOnCpu(mod->mod, given.operands, given.outputs);
  });
}

attnc_status attnc_compute_backward_on_cpu(const attnc_mod* mod, const attnc_backward_operands* operands,
                                           const attnc_backward_outputs* outputs) {
  return call({{mod, "mod"}}, [&](Arguments& arguments) -> Status {
    const GivenBackward given(arguments, operands, outputs);
    if (!arguments.ok()) return {};
    return computeBackwardOnCpu(mod->mod, given.operands, given.outputs);
  });
}
