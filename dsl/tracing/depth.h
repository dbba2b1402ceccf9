// Counts one level of the tracer's recursion, so that no text exhausts the stack.
#pragma once

#include "dsl/tracing/tracer.h"

namespace attnc::dsl {

class Tracer::Deeper {
public:
  explicit Deeper(Tracer& tracer) : depth(tracer.depth) {
    if (tracer.depth >= kMaxEvalDepth) {
      tracer.diagnostics.report(tracer.at, diag::evalTooDeep, Count(kMaxEvalDepth));
      throw Abort{};
    }
    ++depth;
  }
  ~Deeper() { --depth; }
  Deeper(const Deeper&) = delete;

private:
  unsigned& depth;
};

} // namespace attnc::dsl
