// The state of lower(), shared by lower.cpp and lower_gather.cpp.
#pragma once

#include "analysis/intervals.h"
#include "codegen/program.h"

#include <map>
#include <optional>

namespace attnc::codegen {

const char* cType(ir::Type type);
/// Returns the cost of an operation on this type.
int costOf(ir::Op op, ir::Type type);

class Lowering {
public:
  Lowering(const ir::Module& of, size_t firstDerived, Arguments& arguments);
  Program run(const ir::CaptureGradients& gradients);

private:
  static constexpr uint32_t kNotLowered = ~0u;

  uint32_t lowerRoot(ir::Value root);
  uint32_t lowerValue(ir::Value value);
  uint32_t lowerLeaf(const ir::Node& node);
  uint32_t lowerCoordinate(const ir::Node& node);
  uint32_t lowerSpelled(ir::Value value);
  std::optional<uint32_t> lowerCheapDivision(ir::Value value);
  uint32_t lowerParam(ir::ParamKind param);
  uint32_t lowerCast(const ir::Node& node);
  uint32_t lowerDiv(const ir::Node& node);
  uint32_t lowerSum(const ir::Node& node);
  uint32_t lowerGather(ir::Value load);
  std::optional<uint32_t> lowerDenseOffset(const ir::CaptureGradient& place);

  // Gathers.
  struct AddressTerms;
  uint32_t lowerIndex(ir::Value load, unsigned axis);
  AddressTerms termsOf(ir::Value load);
  uint32_t addSum(llvm::ArrayRef<uint32_t> terms, std::string type, const char* prefix, const ir::Node& load);

  /// Appends the expression, or returns an existing one with the same text and operands. The level becomes the join of
  /// the given one and the operands'. Type, name and line may be omitted for the expression of the IR node itself.
  uint32_t add(Expr expr);
  uint32_t addLeaf(std::string text, std::string type);
  /// Returns the field of ModArgs with this content, made on first use.
  uint32_t addArg(ArgWord slot, std::string type, llvm::StringRef prefix, llvm::StringRef name,
                  llvm::StringRef suffix = {});

  const ir::Module& module;
  size_t firstDerived;
  analysis::Intervals intervals;
  Program program;
  std::vector<uint32_t> exprOf;     // IR value -> expression
  std::vector<uint32_t> numberOf;   // by IR value: its number in printed IR; unused for leaves
  std::vector<ir::ParamSet> params; // by IR value: the parameters it depends on
  std::map<std::pair<std::string, std::vector<uint32_t>>, uint32_t> exprWith;
  Arguments& arguments;
};

} // namespace attnc::codegen
