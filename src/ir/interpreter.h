// The interpreter: evaluates a module's values for given captures and coordinates. It is the oracle of codegen and
// kernels.
//
// In: a verified module and bindings whose tensors are host memory. Out: one value per call. f32 is single precision,
// rounded per operation as defined in semantics.h. Sums add in the order of their index, from 0.
//
// A gather whose index lies outside the tensor reads the nearest element inside (each index is clamped by itself). A
// gather from an empty tensor gives 0. Kernels do the same for every index that is not proven.
#pragma once

#include "ir/bindings.h"
#include "ir/ir.h"
#include "support/element.h"

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace attnc::ir {

/// Evaluates one value of a module. Compiles what the value needs into a flat tape once, ordered by level. The
/// constructor computes constants and launch values; values that depend on (b, h) are recomputed when these change,
/// values that depend on q when q changes. So iterate kv innermost. Copies what it needs of the module. The tensors are
/// borrowed and must not change while the evaluator lives.
/// Not thread-safe, not even as const (it remembers the last row): copy one per thread.
class Evaluator {
public:
  Evaluator(const Module& module, const Bindings& bindings, Value root);

  /// Returns integers and bools in Number::integer, f32 in Number::real. Parameters from grad on: for
  /// outputs that take them.
  Number evaluate(float score, int64_t b, int64_t h, int64_t q, int64_t kv, float grad = 0, int64_t round = 0,
                  float scoreTangent = 0, float gradTangent = 0, float prob = 0) const {
    if (b != lastB || h != lastH) {
      setHead(b, h);
      setRow(q);
    } else if (q != lastQ) {
      setRow(q);
    }
    slotOf(ParamKind::KvIdx).integer = kv;
    slotOf(ParamKind::Score).real = score;
    slotOf(ParamKind::Grad).real = grad;
    slotOf(ParamKind::Round).integer = round;
    slotOf(ParamKind::ScoreTangent).real = scoreTangent;
    slotOf(ParamKind::GradTangent).real = gradTangent;
    slotOf(ParamKind::Prob).real = prob;
    run(rowEnd, steps.size());
    return slots[root];
  }

  Type type() const { return rootType; }

private:
  Evaluator() : slots(kParamCount, Number{.integer = 0}) {}
  struct Gather {
    const void* data;
    DType dtype;
    uint32_t result;
    struct Axis {
      uint32_t index;
      int64_t last, stride; // last index, stride in elements
    };
    llvm::SmallVector<Axis, 3> axes;
  };
  struct Step {
    void (*apply)(const Step&, const Evaluator&);
    uint32_t result, a, b, c;
  };
  struct Rounds { // rounds of a sum
    std::vector<Step> steps;
    uint32_t index, term; // slots
    int64_t count;
  };
  using Position = std::array<uint32_t, 5>; // slots of a random number's operands
  friend struct Tape;
  friend std::vector<Number> valuesAt(const Module&, const Bindings&, Value, float, int64_t, int64_t, int64_t, int64_t);
  /// The first slots hold the parameters.
  Number& slotOf(ParamKind param) const { return slots[size_t(param)]; }

  void run(size_t begin, size_t end) const {
    for (size_t at = begin; at < end; ++at) steps[at].apply(steps[at], *this);
  }
  void setHead(int64_t b, int64_t h) const;
  void setRow(int64_t q) const;

  std::vector<Step> steps; // head, row, then element (columns change with every call)
  std::vector<Gather> gathers;
  std::vector<Rounds> sums;
  std::vector<Position> randoms;
  size_t headEnd = 0, rowEnd = 0;
  uint32_t root = 0;
  Type rootType = Type::F32;
  mutable std::vector<Number> slots;
  mutable int64_t lastB = INT64_MIN, lastH = INT64_MIN, lastQ = INT64_MIN; // nothing has been computed yet
};

/// Returns the root and the values that it needs for one element of attention, by Value::id. Other values, and values
/// that sums compute in each round, are 0. The weight `prob` is 1.
std::vector<Number> valuesAt(const Module& module, const Bindings& bindings, Value root, float score, int64_t b,
                             int64_t h, int64_t q, int64_t kv);

/// Evaluates a module's outputs. Not thread-safe: copy one per thread.
class Interpreter {
public:
  /// `module` is verified and outlives the interpreter. `bindings` are for this module and are copied.
  Interpreter(const Module& module, const Bindings& bindings);

  /// Returns the output `score` for the score rounded to f32. Without this output, returns `score` itself, unrounded.
  double score(double score, int64_t b, int64_t h, int64_t q, int64_t kv) const {
    return ofScore ? ofScore->evaluate(float(score), b, h, q, kv).real : score;
  }

  /// Returns the output `mask`; true if the module has none.
  bool mask(int64_t b, int64_t h, int64_t q, int64_t kv) const {
    return !ofMask || ofMask->evaluate(0, b, h, q, kv).integer != 0;
  }

  /// Returns the output `prob_factor`; 1 if the module has none.
  double probFactor(int64_t b, int64_t h, int64_t q, int64_t kv) const {
    return ofProb ? ofProb->evaluate(0, b, h, q, kv).real : 1;
  }

  /// Whether the module has the output `prob_weight`.
  bool hasProbWeight() const { return ofProbWeight.has_value(); }
  /// Returns this output. `prob`: the weight of the softmax. Precondition: the module has it.
  double probWeight(double prob, int64_t b, int64_t h, int64_t q, int64_t kv) const {
    return ofProbWeight->evaluate(0, b, h, q, kv, 0, 0, 0, 0, float(prob)).real;
  }

  /// Returns the output `sink`; -inf if the module has none.
  double sink(int64_t b, int64_t h, int64_t q) const {
    return ofSink ? ofSink->evaluate(0, b, h, q, 0).real : -std::numeric_limits<double>::infinity();
  }

  /// Returns whether scores are weights, in place of the softmax (kIsWeight).
  bool isWeight() const { return module->output(kIsWeight).has_value(); }

  /// Returns any value as a double (exact for bool, i32, f32). Slow, since it compiles the value anew; for repeated use
  /// keep an Evaluator.
  double value(Value value, float score, int64_t b, int64_t h, int64_t q, int64_t kv) const;
  /// Returns any output of the module, in the same way.
  double output(llvm::StringRef name, float score, int64_t b, int64_t h, int64_t q, int64_t kv) const {
    return value(*module->output(name), score, b, h, q, kv);
  }

private:
  const Module* module;
  Bindings bindings;
  std::optional<Evaluator> ofScore, ofMask, ofProb, ofProbWeight, ofSink;
};

} // namespace attnc::ir
