#include "large_scores.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace attnc::gputest {
namespace {

using Where = LargeCase::Where;
using Way = LargeCase::Way;

constexpr const char* kWays[] = {"element", "column", "row", "product"};

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
  return fmt::format("scores of {:.3g} by {}, {}", size, kWays[int(way)], cli::LargeScores::kNames[int(where)]);
}

std::vector<LargeCase> largeCases() {
  constexpr double kLowest = -double(std::numeric_limits<float>::max());
  const double sizes[] = {-1e4, -1e6, -1e9, -1e30, kLowest, 1e4, 1e9, -kLowest};
  std::vector<LargeCase> all;
  for (double size : sizes) {
    for (Where where :
         {Where::Half, Where::FirstHalf, Where::Rows, Where::All, Where::Tiles, Where::Scattered, Where::Mixed})
      all.push_back({where, Way::Element, size});
    for (Where where : {Where::Half, Where::FirstHalf, Where::All, Where::Mixed})
      all.push_back({where, Way::Column, size});
    for (Where where : {Where::Rows, Where::All}) all.push_back({where, Way::Row, size});
    if (std::abs(size) > 1e37) continue; // sums of products would overflow
    for (Where where : {Where::Half, Where::FirstHalf, Where::All, Where::Tiles})
      all.push_back({where, Way::Product, size});
  }
  return all;
}

HostOperands drawLarge(const LargeCase& large, const Problem& problem) {
  const Mod mod = large.mod();
  HostOperands operands = draw(mod, problem);
  cli::Generator generator(problem.seed, problem.shape, /*mostElements=*/int64_t(1) << 30,
                           cli::LargeScores{large.size, large.where});
  for (cli::HostTensor* tensor : {&operands.q, &operands.k}) *tensor = generator.signs(problem.dtype, tensor->shape);
  if (large.way == Way::Product) generator.lengthenKeys(operands.q, operands.k, kLargeScale);
  for (const CaptureInfo& capture : mod.captures()) {
    cli::HostTensor& tensor = operands.tensors.at(capture.name);
    take(generator.fill(capture, tensor));
    operands.captures.set(capture.name, tensor.view());
  }
  return operands;
}

} // namespace attnc::gputest
