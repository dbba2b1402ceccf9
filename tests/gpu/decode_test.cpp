// Decode kernels against the fp64 reference: lengths around the edges of steps and shares, any GQA ratio, NaN in the
// rows of K and V that no sequence has, parts merged again and again in one workspace.
#include "gpu.h"

#include "support/element.h"

#include <limits>

using namespace attnc;
using namespace attnc::gputest;

namespace {

constexpr Family kBoth[] = {Family::Auto, Family::Sm80}; // sm90, where it serves, and sm80

/// What a library mod's own arithmetic may add to the error of a score: as tests/gpu/forward_test.cpp has it.
double scoreErrorOf(const std::string& name, int64_t kvLen) {
  if (name == "softcap_approx") return 1.5 * 0x1p-10;
  if (name == "alibi") return 2.5 * 2 * double(kvLen) * 0x1p-23;
  return 0;
}

/// NaN in the rows that no sequence has.
void poison(HostOperands& operands, const std::vector<int32_t>& lengths) {
  for (cli::HostTensor* tensor : {&operands.k, &operands.v}) {
    const int64_t heads = tensor->shape[1], rows = tensor->shape[2], columns = tensor->shape[3];
    for (int64_t b = 0; b < int64_t(lengths.size()); ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = lengths[size_t(b)] * columns; i < rows * columns; ++i)
          writeElement(tensor->bytes.data(), tensor->dtype, (b * heads + h) * rows * columns + i,
                       std::numeric_limits<double>::quiet_NaN());
  }
}

void checkDecode(const std::string& name, const Problem& problem, const std::vector<int32_t>& lengths = {},
                 RunOptions options = {}) {
  INFO(name << ", " << problem.text() << ", family " << int(options.family));
  const Mod mod = libraryMod(name);
  options.decode = true;
  HostOperands clean = draw(mod, problem);
  clean.kvLengths = lengths;
  HostOperands operands = clean;
  poison(operands, lengths);
  const Outcome outcome = runKernel(mod, problem, operands, options);
  checkClose(outcome, runReference(mod, problem, clean), problem, false, scoreErrorOf(name, problem.shape.kvLen));
  options.launches = 3;
  const Outcome again = runKernel(mod, problem, operands, options);
  CHECK(again.out == outcome.out);
  CHECK(again.lse == outcome.lse);
}

} // namespace

static void checkLibrary(Family family) {
  const std::vector<int32_t> lengths = {0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000, 1024, 4999, 5000};
  for (const std::string& name : libraryNames())
    for (int64_t qLen : {1, 7})
      checkDecode(name, {{int64_t(lengths.size()), 4, 2, qLen, 5000}, 64, 64, DType::BF16}, lengths,
                  {.family = family});
}

TEST_CASE("decode kernels serve every library mod, and lengths around every edge", "[gpu]") {
  ATTNC_NEED_GPU();
  checkLibrary(Family::Auto);
}

TEST_CASE("sm80's decode kernels serve every library mod, and lengths around every edge", "[gpu]") {
  ATTNC_NEED_GPU();
  checkLibrary(Family::Sm80);
}

TEST_CASE("decode kernels serve any GQA ratio and number of queries", "[gpu]") {
  ATTNC_NEED_GPU();
  for (Family family : kBoth)
    for (const char* name : {"noop", "causal", "alibi", "sliding_window"})
      for (int64_t group : {1, 3, 5, 8})
        for (int64_t qLen : {1, 7, 64, 127})
          checkDecode(name, {{2, 2 * group, 2, qLen, 3001}, 128, 128, DType::F16}, {3001, 700}, {.family = family});
}

TEST_CASE("decode kernels serve any head dim and layout, with a workspace and without", "[gpu]") {
  ATTNC_NEED_GPU();
  for (auto [qk, v] : {std::pair{8, 8}, {40, 72}, {8, 256}, {192, 128}, {256, 256}})
    for (bool workspace : {true, false}) {
      Problem problem{{2, 8, 2, 3, 2000}, qk, v, DType::BF16};
      for (Family family : kBoth) checkDecode("causal", problem, {}, {.family = family, .workspace = workspace});
      problem.headsLast = true;
      problem.rowPadding = 3;
      checkDecode("alibi", problem, {}, {.workspace = workspace});
      problem.rowPadding = 0;
      problem.kvBatchOne = true;
      for (Family family : kBoth) checkDecode("noop", problem, {}, {.family = family, .workspace = workspace});
    }
}

TEST_CASE("one long sequence is divided among all CTAs, many short ones are not", "[gpu]") {
  ATTNC_NEED_GPU();
  for (Family family : kBoth)
    for (const char* name : {"noop", "causal", "softcap"}) {
      checkDecode(name, {{1, 8, 2, 1, 65536}, 128, 128, DType::BF16}, {}, {.family = family});
      checkDecode(name, {{300, 4, 4, 1, 600}, 64, 64, DType::BF16}, {}, {.family = family});
    }
}
