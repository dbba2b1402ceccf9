#include "large_scores.h"

#include "ir/element.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <random>

namespace attnc::gputest {
namespace {

using Where = LargeCase::Where;
using Way = LargeCase::Way;

constexpr const char* kWheres[] = {"last half", "first half", "rows", "all", "tiles", "scattered", "mixed"};
constexpr const char* kWays[] = {"element", "column", "row", "product"};

/// Of an element; q or kv is 0 where there is none.
double biasAt(const LargeCase& large, int64_t q, int64_t kv, int64_t kvLen, std::mt19937_64& random) {
  std::uniform_real_distribution<double> unit;
  switch (large.where) {
  case Where::LastHalf: return kv >= kvLen / 2 ? large.size : 0;
  case Where::FirstHalf: return kv < kvLen / 2 ? large.size : 0;
  case Where::Rows: return q % 3 == 1 ? large.size : 0;
  case Where::All: return large.size;
  case Where::Tiles: return kv / 64 % 2 ? large.size : 0;
  case Where::Scattered: return unit(random) < 0.1 ? large.size : 0;
  case Where::Mixed: return (unit(random) < 0.5 ? -1 : 1) * std::pow(std::abs(large.size), unit(random));
  }
  return 0;
}

} // namespace

Mod LargeCase::mod() const {
  switch (way) {
  case Way::Element:
    return take(Mod::parse("bias: f32[Q_LEN, KV_LEN]\ndef score_mod(score, b, h, q_idx, kv_idx):\n"
                           "  return score + bias[q_idx, kv_idx]\n"));
  case Way::Column:
    return take(
        Mod::parse("bias: f32[KV_LEN]\ndef score_mod(score, b, h, q_idx, kv_idx):\n  return score + bias[kv_idx]\n"));
  case Way::Row:
    return take(
        Mod::parse("bias: f32[Q_LEN]\ndef score_mod(score, b, h, q_idx, kv_idx):\n  return score + bias[q_idx]\n"));
  case Way::Product: break;
  }
  return libraryMod("noop");
}

std::string LargeCase::text() const {
  return fmt::format("scores of {:.3g} by {}, {}", size, kWays[int(way)], kWheres[int(where)]);
}

std::vector<LargeCase> largeCases() {
  constexpr double kLowest = -double(std::numeric_limits<float>::max());
  const double sizes[] = {-1e4, -1e6, -1e9, -1e30, kLowest, 1e4, 1e9, -kLowest};
  std::vector<LargeCase> all;
  for (double size : sizes) {
    for (Where where :
         {Where::LastHalf, Where::FirstHalf, Where::Rows, Where::All, Where::Tiles, Where::Scattered, Where::Mixed})
      all.push_back({where, Way::Element, size});
    for (Where where : {Where::LastHalf, Where::FirstHalf, Where::All, Where::Mixed})
      all.push_back({where, Way::Column, size});
    for (Where where : {Where::Rows, Where::All}) all.push_back({where, Way::Row, size});
    if (std::abs(size) > 1e37) continue; // sums of products would overflow
    for (Where where : {Where::LastHalf, Where::FirstHalf, Where::All, Where::Tiles})
      all.push_back({where, Way::Product, size});
  }
  return all;
}

HostOperands drawLarge(const LargeCase& large, const Problem& problem) {
  const Mod mod = large.mod();
  HostOperands operands = draw(mod, problem);
  std::mt19937_64 random(problem.seed);
  std::uniform_int_distribution<int> trit(-1, 1);
  for (cli::HostTensor* tensor : {&operands.q, &operands.k})
    for (int64_t i = 0; i < tensor->elements(); ++i)
      ir::writeElement(tensor->bytes.data(), tensor->dtype, i, trit(random));
  const ProblemShape& s = problem.shape;
  if (large.way == Way::Product) {
    // Long rows are multiples of the first element of q, which is 1: their scores are of one sign.
    const double factor = std::exp2(std::round(std::log2(std::abs(large.size) / kLargeScale)));
    for (int64_t row = 0; row < operands.q.elements() / problem.headDim; ++row)
      ir::writeElement(operands.q.bytes.data(), operands.q.dtype, row * problem.headDim, 1);
    for (int64_t row = 0; row < operands.k.elements() / problem.headDim; ++row) {
      if (biasAt(large, 0, row % s.kvLen, s.kvLen, random) == 0) continue;
      for (int64_t i = 0; i < problem.headDim; ++i)
        ir::writeElement(operands.k.bytes.data(), operands.k.dtype, row * problem.headDim + i,
                         i == 0 ? std::copysign(factor, large.size) : 0);
    }
    return operands;
  }
  cli::HostTensor& bias = operands.tensors.at("bias");
  for (int64_t i = 0; i < bias.elements(); ++i) {
    const int64_t q = large.way == Way::Element ? i / s.kvLen : large.way == Way::Row ? i : 0;
    const int64_t kv = large.way == Way::Element ? i % s.kvLen : large.way == Way::Column ? i : 0;
    ir::writeElement(bias.bytes.data(), DType::F32, i, biasAt(large, q, kv, s.kvLen, random));
  }
  return operands;
}

} // namespace attnc::gputest
