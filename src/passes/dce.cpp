// In: any module. Out: the same without the nodes that no output needs, in the same order. Not: unused captures, which
// the user declared and binds.
#include "passes/pass.h"
#include "passes/rebuild.h"

namespace attnc::passes {

Status dce(ir::Module& module, const PassContext&) {
  module = rebuild(module, keep);
  return {};
}

} // namespace attnc::passes
