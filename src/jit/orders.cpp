#include "jit/orders.h"

#include "jit/ptxas_log.h"

#include <fmt/format.h>

namespace attnc::jit {

Expected<CompiledKernel> compileInOrders(KernelCompiler& compiler, const KernelSource& source) {
  Expected<CompiledKernel> first = compiler.compile(source);
  if (!first || source.text.find("ATTNC_ORDER") == std::string::npos || !serialisesProducts(*first)) return first;
  const std::string why = first->advisories.front();
  for (int order = 1; order < kOrders; ++order) {
    KernelSource other = source;
    other.options.push_back(fmt::format("-DATTNC_ORDER={}", order));
    Expected<CompiledKernel> found = compiler.compile(other);
    if (!found) continue;
    first->compileMs += found->compileMs;
    if (serialisesProducts(*found)) continue;
    found->order = order;
    found->compileMs = first->compileMs;
    found->log += fmt::format("attnc: order {} of the statements; in order 0 ptxas said: {}\n", order, why);
    return found;
  }
  first->log += "attnc: products are serialised in all orders of the statements\n";
  return first;
}

} // namespace attnc::jit
