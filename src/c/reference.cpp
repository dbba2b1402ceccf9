#include "attnc/c/reference.h"

#include "c/call.h"
#include "c/handles.h"
#include "c/operands.h"

using namespace attnc;
using namespace attnc::c;

attnc_status attnc_compute_on_cpu(const attnc_mod* mod, const attnc_operands* operands, const attnc_outputs* outputs) {
  return call({{mod, "mod"}}, [&]() -> Status {
    const GivenForward given(operands, outputs);
    return computeOnCpu(mod->mod, given.operands, given.outputs);
  });
}

attnc_status attnc_compute_backward_on_cpu(const attnc_mod* mod, const attnc_backward_operands* operands,
                                           const attnc_backward_outputs* outputs) {
  return call({{mod, "mod"}}, [&]() -> Status {
    const GivenBackward given(operands, outputs);
    return computeBackwardOnCpu(mod->mod, given.operands, given.outputs);
  });
}
