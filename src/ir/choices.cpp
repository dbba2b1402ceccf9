#include "ir/choices.h"

namespace attnc::ir {

void maskUnchosen(Module& module) {
  for (unsigned i = 0; i < module.tensors.size(); ++i) {
    if (!module.tensors[i].choices) continue;
    const Value taken = module.make(Op::Load, loadedType(module.tensors[i].dtype), module.param(ParamKind::B), i);
    Value chosen = module.constBool(false);
    for (int64_t mod = 0; mod < module.tensors[i].choices; ++mod) {
      const Value number = module.constInt(module[taken].type, mod);
      chosen = module.make(Op::Or, Type::Bool, {chosen, module.make(Op::Eq, Type::Bool, {taken, number})});
    }
    const std::optional<Value> mask = module.output(kMask);
    module.setOutput(kMask, mask ? module.make(Op::And, Type::Bool, {*mask, chosen}) : chosen);
  }
}

} // namespace attnc::ir
