// Helpers of the tests of the front end: trace a text, and run the result on made-up captures.
#pragma once

#include "dsl/frontend.h"
#include "ir/interpreter.h"
#include "ir/reductions.h"

#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace attnc::testing {

/// Returns the module of a text. If the text is wrong, fails a check with its diagnostics.
ir::Module traced(const std::string& text, const std::map<std::string, std::string>& defines = {});
ir::Module tracedWith(const std::string& text, const dsl::FrontendOptions& options);

/// Returns "id at line:column" of each diagnostic of a text; {} if it is right.
std::vector<std::string> problems(const std::string& text, const std::map<std::string, std::string>& defines = {});
std::vector<std::string> problemsWith(const std::string& text, const dsl::FrontendOptions& options);

/// The mods of a text with its captures bound to reproducible random values, in host memory.
class Running {
public:
  explicit Running(ir::Module traced, unsigned seed = 1);
  explicit Running(const std::string& text) : Running(traced(text)) {}
  Running(const Running&) = delete;

  double score(double score, int64_t b, int64_t h, int64_t q, int64_t kv) const {
    return interpreter->score(score, b, h, q, kv);
  }
  bool mask(int64_t b, int64_t h, int64_t q, int64_t kv) const { return interpreter->mask(b, h, q, kv); }
  double prob(double prob, int64_t b, int64_t h, int64_t q, int64_t kv) const {
    return interpreter->hasProbWeight() ? interpreter->probWeight(prob, b, h, q, kv)
                                        : prob * interpreter->probFactor(b, h, q, kv);
  }
  double sink(int64_t b, int64_t h, int64_t q) const { return interpreter->sink(b, h, q); }
  /// Returns what an output reduces, for a weight that is the score.
  double reduced(const ir::Reduction& of, double score, int64_t b, int64_t h, int64_t q, int64_t kv) const {
    const float x = float(score);
    return reductions.at(of.name).evaluate(x, b, h, q, kv, 0, 0, 0, 0, x).real;
  }

  ir::Module module;
  std::map<std::string, int64_t> dims; ///< B 2, H 4, HKV 2, Q_LEN 24, KV_LEN 40, free names 7
  /// Elements of the captured tensors, row-major: integers in 0..6, floats in -2..2, both exact in f32 and bf16.
  std::map<std::string, std::vector<double>> elements;
  std::map<std::string, double> scalars; ///< ints 5, floats 1.5, bools true

private:
  TensorView makeTensor(const ir::TensorCapture& capture, std::mt19937& random);

  std::deque<std::vector<char>> memory;
  std::optional<ir::Interpreter> interpreter;
  std::map<std::string, ir::Evaluator> reductions;
};

std::string readFile(const std::string& path);

} // namespace attnc::testing
