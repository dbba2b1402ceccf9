// One function of Mod as text.
//
// In: a program and the expressions that the function must produce. Out: its statements, and the fields that it needs
// from functions outside it. An expression becomes a statement if it is a field, is used more than once or would make a
// line too long; all others nest into their user. A sum is a loop; values that its rounds share are computed before it.
#pragma once

#include "codegen/names.h"
#include "codegen/program.h"

#include <llvm/ADT/DenseMap.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace attnc::codegen {

/// Hook: any other value, from what is known at its level. Edge: a row's value, from b, h and q_idx without a Row.
/// Sink: the same without a Head, so that a kernel keeps nothing for it until a row is complete.
enum class Function : uint8_t { Head, Row, Column, Score, DScore, Mask, Hook, Edge, Sink };

/// The contents of Head, Row and Col, as expressions in the program's order.
struct Fields {
  std::set<uint32_t> head, row, column;
  std::vector<std::string> names; ///< of the field, by expression; empty for expressions that are not fields
};

class FunctionText {
public:
  /// Determines what the function computes, and adds to `fields` what it needs from others. `roots`: the fields that it
  /// fills, or the one value that it returns.
  FunctionText(const Program& program, Function function, std::vector<uint32_t> roots, Fields& fields);

  /// Returns the instructions of the function, as ops.def counts them; for a sum, those of its unrolled rounds.
  int64_t work() const;

  /// Returns the statements, indented. Precondition: the fields have names. `file`: a string literal for #line.
  std::string body(const Fields& fields, const std::string& file) const;

  /// Returns the statements over ranges (templates/mod/ranges.cuh) in place of values. Precondition: it is Mask.
  std::string overRanges(const Fields& fields, const std::string& file) const;

  /// Whether a type of values has ranges; addresses have none.
  static bool hasRanges(std::string_view type);

private:
  struct Text {
    std::string code;
    std::string_view pattern = {}; ///< the pattern that made it; empty for a name, which binds tightest
  };
  using Texts = llvm::DenseMap<uint32_t, Text>; // by expression
  class Writer;
  bool isOwn(const Expr& expr) const;
  std::vector<uint32_t> insideOf(uint32_t sum) const;
  bool fills() const { return function <= Function::Column; }
  bool takesCoord() const { return function >= Function::Score && function <= Function::Mask; }
  void use(uint32_t id, Fields& fields);
  Text spell(uint32_t id, const Texts& own, const Fields& fields) const;
  Text expand(const Expr& expr, const Texts& own, const Fields& fields) const;

  const Program& program;
  Function function;
  std::vector<uint32_t> roots;
  std::map<uint32_t, uint32_t> uses; // by expression: number of uses in this function
};

} // namespace attnc::codegen
