// Soft caps on every family: their error, scores far beyond the cap, and NaN that must not spread.
#include "gpu.h"

#include "support/element.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace attnc;
using namespace attnc::gputest;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// cap * tanh(score / cap) with the rows of a problem set one by one.
struct Capped {
  Mod mod = libraryMod("softcap", {{"CAUSAL", "False"}});
  Problem problem{{1, 1, 1, 512, 128}, 64, 64, DType::BF16};
  HostOperands operands = draw(mod, problem);

  void setCap(double cap) { operands.captures.set("cap", cap); }
  void setRow(cli::HostTensor& tensor, int64_t row, float first, float others) {
    auto* values = reinterpret_cast<uint16_t*>(tensor.bytes.data());
    for (int64_t i = 0; i < problem.headDim; ++i) values[row * problem.headDim + i] = toBf16(i == 0 ? first : others);
  }
  float first(const cli::HostTensor& tensor, int64_t row) const {
    return float(readElement(tensor.bytes.data(), DType::BF16, row * problem.headDim).real);
  }
};

} // namespace

GPU_TEST_CASE("a soft cap's scores are within 6e-7 of the cap, small ones within a few ulp", "[gpu]") {
  Capped c;
  const ProblemShape& shape = c.problem.shape;
  // k = (1, 0, ...) everywhere and scale 1: the score of a row is its q[0], exactly, and lse is y + log(KV_LEN).
  for (int64_t row = 0; row < shape.kvLen; ++row) c.setRow(c.operands.k, row, 1, 0);
  for (double cap : {0.5, 30.0, 1000.0, 1e6, 1e20, -30.0})
    for (double reach :
         {1e-19, 0.5, 3.0, 40.0}) { // in units of the cap: tiny, near zero, far from it, and where tanh is 1
      if (std::abs(cap) * reach > 1e8) continue; // beyond that an f32 score has no place for the softmax's exponents
      c.setCap(cap);
      for (int64_t row = 0; row < shape.qLen; ++row) {
        const double unit = 2 * double(row) / double(shape.qLen) - 1;
        c.setRow(c.operands.q, row, float(std::abs(cap) * reach * unit), 0);
      }
      for (Family family : familiesFor(c.mod, c.problem)) {
        const Outcome outcome = runKernel(c.mod, c.problem, c.operands, {.family = family, .scale = 1.f});
        double worst = 0;
        for (int64_t row = 0; row < shape.qLen; ++row) {
          const double score = c.first(c.operands.q, row), y = cap * std::tanh(score / cap);
          const double lse = y + std::log(double(shape.kvLen));
          const double ulps = 8 * 0x1p-23 * (std::abs(lse) + 5); // of lse itself, and of y where the form is relative
          const double absolute = reach > 0.6 ? 6e-7 * std::abs(cap) : 0;
          const double error = std::abs(outcome.lse[size_t(row)] - lse) / (absolute + ulps);
          worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
        }
        INFO("cap " << cap << ", reach " << reach << ", family " << int(family));
        CHECK(worst <= 1);
      }
    }
}

GPU_TEST_CASE("a NaN of one row or of a masked column stays where it is, also under a soft cap", "[gpu]") {
  for (double cap : {0.2, 50.0}) // scores far beyond the cap, and near zero
    for (bool softcap : {true, false}) {
      Capped c;
      c.mod = libraryMod(softcap ? "softcap" : "causal");
      c.operands = draw(c.mod, c.problem);
      if (softcap) c.setCap(cap);
      const ProblemShape& shape = c.problem.shape;
      c.setRow(c.operands.q, 20, kNan, 1);
      for (int64_t row : {40, 41, 77, 127}) c.setRow(c.operands.k, row, kNan, 1);
      for (Family family : familiesFor(c.mod, c.problem)) {
        const Outcome outcome = runKernel(c.mod, c.problem, c.operands, {.family = family});
        INFO("cap " << cap << ", softcap " << softcap << ", family " << int(family));
        int64_t wrong = 0;
        for (int64_t row = 0; row < shape.qLen; ++row) {
          const bool isNan = row == 20 || row >= 40; // causal: columns up to the row's own
          wrong += std::isnan(outcome.lse[size_t(row)]) != isNan;
          for (int64_t i = 0; i < c.problem.headDimV; ++i)
            wrong += std::isnan(outcome.out[size_t(row * c.problem.headDimV + i)]) != isNan;
        }
        CHECK(wrong == 0);
      }
    }
}
