// In: any module. Out: the same order of nodes, without those that no output needs. Not: unused captures, which the
// user declared and binds.
#include "passes/pass.h"
#include "passes/rebuild.h"

namespace attnc::passes {

Status dce(ir::Module& module, const PassContext&) {
  module = rebuild(module, keep);
  return {};
}

} // namespace attnc::passes
