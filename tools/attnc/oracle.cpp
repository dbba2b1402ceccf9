#include "oracle.h"

#include "shapes.h"

#include "api/check_values.h"
#include "api/mod_impl.h"
#include "support/try.h"

#include <set>

namespace attnc::cli {

Expected<reference::GradientResult> runReference(const Mod& mod, const HostOperands& operands,
                                                 const RunOptions& options) {
  BackwardOperands args;
  static_cast<Operands&>(args) = viewsOf(operands);
  const passes::SequenceForm form = sequenceForm(args, prepareOptions(options));
  args.k = operands.k.view(), args.v = operands.v.view(); // gathered, with the new rows
  if (operands.kScales) args.kScales = operands.kScales->view();
  if (operands.vScales) args.vScales = operands.vScales->view();
  args.pageTable = args.newK = args.newV = {};
  if (options.scale) args.scale = float(*options.scale);
  ATTNC_TRY_AS(sequences, form.isPlain() ? mod : sequencesMod(mod, form, {}));
  args.captures = &operands.captures;
  if (asksForChecks(jit::Env::read())) ATTNC_TRY(checkGathers(sequences->module(), args));
  if (options.backward) {
    std::set<std::string> wanted;
    for (const auto& [name, tensor] : operands.gradients.all()) wanted.insert(name);
    ATTNC_TRY_AS(derived, gradientMod(*sequences, wanted));
    args.dOut = operands.dOut.view();
    if (operands.dLse) args.dLse = operands.dLse->view();
    return reference::gradients(derived->module(), operands.captures, args, captureGradients(*derived));
  }
  ATTNC_TRY_AS(forward, reference::attention(sequences->module(), operands.captures, args));
  reference::GradientResult result;
  result.forward = *std::move(forward);
  return result;
}

} // namespace attnc::cli
