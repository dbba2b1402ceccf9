// Gradients under construction: products whose factors stay apart until a value is needed.
//
//   d tanh(s / cap) * cap  =  grad * cap * (1 - t * t) / cap  =  grad * (1 - t * t)
//
// So a factor that is divided out later costs nothing, factors that heads, rows or columns know become one number at
// their level, and what does not depend on the index of a sum leaves it. A product holds under conditions: elsewhere it
// is 0, whatever its factors are, infinities and NaN included.
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

/// factor * above[0] * above[1] ... / below[0] / below[1] ... where all conditions hold; else 0.
struct Product {
  double factor = 1;
  llvm::SmallVector<ir::Value, 4> above, below; ///< f32, not constant, by ascending id; none is in both
  Conditions when;                              ///< each once
};

/// Makes products, and values of them, in a module that grows meanwhile.
class Products {
public:
  explicit Products(ir::Module& module) : module(module) {}

  ir::Module& module;
  uint32_t line = 0; ///< of the mod's text: where new values stand

  /// The node; a constant for an operation on constants.
  ir::Value make(ir::Op op, ir::Type type, llvm::ArrayRef<ir::Value> operands, int64_t attr = 0);

  void multiply(Product& product, ir::Value by);
  void divide(Product& product, ir::Value by);
  void require(Product& product, Condition condition);

  /// The product as one value.
  ir::Value valueOf(const Product& product);
  /// The sum of products, as one that keeps their common factors apart; 0 of none.
  Product sum(llvm::SmallVector<Product, 2> terms);
  /// The sum of a product over the rounds of a loop. `isLast`: no more factors follow.
  Product sumOver(const Product& product, ir::Loop loop, bool isLast);

  /// The loops that a value is open in.
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

  std::vector<ir::LoopSet> open; // by Value::id, of the values seen so far
  std::vector<ir::Level> levels;
};

} // namespace attnc::passes
