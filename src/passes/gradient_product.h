// Gradients under construction: products whose factors stay apart until a value is needed.
//
//   d tanh(s / cap) * cap  =  grad * cap * (1 - t * t) / cap  =  grad * (1 - t * t)
//
// So a factor that is divided out later costs nothing; factors known per head, row or column become one number at their
// level; and factors that do not depend on the index of a sum leave the sum. A product may have conditions: if they do
// not all hold it is 0, even if factors are infinite or NaN.
#pragma once

#include "ir/loops.h"

namespace attnc::passes {

/// A bool value, or its negation.
struct Condition {
  ir::Value value;
  bool holds = true;
  friend bool operator==(const Condition& a, const Condition& b) { return a.value == b.value && a.holds == b.holds; }
};
using Conditions = llvm::SmallVector<Condition, 2>;

/// factor * above[0] * above[1] ... / below[0] / below[1] ... if all conditions hold, else 0.
struct Product {
  double factor = 1;
  llvm::SmallVector<ir::Value, 4> above, below; ///< f32, not constant, by ascending id; above and below are disjoint
  Conditions when;                              ///< each once
};

/// Builds products and their values in a module, to which it adds nodes.
class Products {
public:
  explicit Products(ir::Module& module) : module(module) {}

  ir::Module& module;
  uint32_t line = 0; ///< line of the mod's text for new values

  /// Returns the node, or a constant if all operands are constant.
  ir::Value make(ir::Op op, ir::Type type, llvm::ArrayRef<ir::Value> operands, int64_t attr = 0);

  void multiply(Product& product, ir::Value by);
  void divide(Product& product, ir::Value by);
  void require(Product& product, Condition condition);

  /// Returns the product as one value.
  ir::Value valueOf(const Product& product);
  /// Returns the sum of products, with their common factors kept apart. The empty sum is 0.
  Product sum(llvm::SmallVector<Product, 2> terms);
  /// Returns the sum of a product over the rounds of a loop. `isLast`: no more factors follow.
  Product sumOver(const Product& product, ir::Loop loop, bool isLast);

  /// Returns the loops that a value is open in.
  ir::LoopSet openOf(ir::Value value) { return learn(), open[value.id]; }

private:
  ir::Level levelOf(ir::Value value) { return learn(), levels[value.id]; }
  void learn();
  ir::Value valueOf(const Conditions& conditions);
  ir::Value unconditional(const Product& product);
  ir::Value chosen(const Conditions& conditions, ir::Value value);
  Product takeCommon(llvm::MutableArrayRef<Product> terms);
  bool join(Product& into, const Product& other);
  void add(Product& into, const Product& other);

  std::vector<ir::LoopSet> open; // open loops by Value::id, for the values seen so far
  std::vector<ir::Level> levels;
};

} // namespace attnc::passes
