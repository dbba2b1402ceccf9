#include "ir/ops.h"

#include <string_view>

namespace attnc::ir {

const OpInfo& info(Op op) {
  using enum Commutes;
  static constexpr OpInfo kTable[] = {
#define OP(Name, text, arity, rule, cuda, value, derivative, commutes, cost)                                           \
  {text, arity, TypeRule::rule, cuda, std::string_view(#derivative) != "None", commutes, cost},
#include "ir/ops.def"
  };
  return kTable[size_t(op)];
}

} // namespace attnc::ir
