#include "ir/ops.h"

namespace attnc::ir {

const OpInfo& info(Op op) {
  constexpr const char* None = nullptr;
  using enum Commutes;
  using enum Cost;
  static constexpr OpInfo kTable[] = {
#define OP(Name, text, arity, rule, cuda, value, derivative, commutes, cost)                                           \
  {text, arity, TypeRule::rule, cuda, derivative, commutes, cost},
#include "ir/ops.def"
  };
  return kTable[size_t(op)];
}

} // namespace attnc::ir
