// Decode kernels against the fp64 reference: lengths around the edges of steps and shares, any GQA ratio, NaN in the
// rows of K and V that no sequence has, parts merged again and again in one workspace.
#include "gpu.h"

#include "helpers/turns.h"

#include "support/element.h"

#include <limits>

using namespace attnc;
using namespace attnc::gputest;

namespace {

constexpr Family kBoth[] = {Family::Auto, Family::Sm80}; // sm90, where it serves, and sm80

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
  checkClose(outcome, runReference(mod, problem, clean), problem, false,
             scoreErrorOf(name, problem.shape, problem.dtype));
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
      if (test::isCaseDue())
        checkDecode(name, {{int64_t(lengths.size()), 4, 2, qLen, 5000}, 64, 64, DType::BF16}, lengths,
                    {.family = family});
}

GPU_TEST_CASE("decode kernels serve every library mod, and lengths around every edge", "[gpu]") {
  checkLibrary(Family::Auto);
}

GPU_TEST_CASE("sm80's decode kernels serve every library mod, and lengths around every edge", "[gpu]") {
  checkLibrary(Family::Sm80);
}

GPU_TEST_CASE("decode kernels serve any GQA ratio and number of queries", "[gpu]") {
  for (Family family : kBoth)
    for (const char* name : {"noop", "causal", "alibi", "sliding_window"})
      for (int64_t group : {1, 3, 5, 8})
        for (int64_t qLen : {1, 7, 64, 127})
          if (test::isCaseDue())
            checkDecode(name, {{2, 2 * group, 2, qLen, 3001}, 128, 128, DType::F16}, {3001, 700}, {.family = family});
}

GPU_TEST_CASE("decode kernels serve any head dim and layout, with a workspace and without", "[gpu]") {
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

GPU_TEST_CASE("one long sequence is divided among all CTAs, many short ones are not", "[gpu]") {
  for (Family family : kBoth)
    for (const char* name : {"noop", "causal", "softcap"}) {
      checkDecode(name, {{1, 8, 2, 1, 65536}, 128, 128, DType::BF16}, {}, {.family = family});
      checkDecode(name, {{300, 4, 4, 1, 600}, 64, 64, DType::BF16}, {}, {.family = family});
    }
}

GPU_TEST_CASE("decode kernels of wide heads serve every library mod, and lengths around every edge", "[gpu]") {
  const std::vector<int32_t> lengths = {0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 500, 699, 700};
  for (const std::string& name : libraryNames())
    for (int64_t qLen : {1, 7}) {
      const ProblemShape shape{int64_t(lengths.size()), 16, qLen == 1 ? 1 : 2, qLen, 700};
      if (test::isCaseDue())
        checkDecode(name, {.shape = shape, .headDim = 576, .headDimV = 512, .vInK = true}, lengths,
                    {.family = Family::Sm90});
    }
}

GPU_TEST_CASE("decode kernels of wide heads serve any head dims, heads and layout, with a workspace and without",
              "[gpu]") {
  struct Dims {
    int qk, v;
    bool vInK;
  };
  for (auto [qk, v, vInK] : {Dims{576, 512, true},
                             {512, 512, true},
                             {576, 512, false},
                             {512, 512, false},
                             {264, 256, true},
                             {320, 320, true},
                             {576, 8, true},
                             {40, 512, false},
                             {392, 104, false}})
    for (int64_t heads : {1, 16, 128})
      for (bool workspace : {true, false}) {
        Problem problem{.shape = {2, heads, 1, heads == 128 ? 2 : 3, 1500},
                        .headDim = qk,
                        .headDimV = v,
                        .dtype = heads == 16 ? DType::F16 : DType::BF16,
                        .vInK = vInK};
        RunOptions options{.family = Family::Sm90, .workspace = workspace};
        if (test::isCaseDue()) checkDecode("causal", problem, {}, options);
        problem.headsLast = true;
        problem.rowPadding = 8;
        if (test::isCaseDue()) checkDecode("alibi", problem, {1500, 700}, options);
        problem.kvBatchOne = true;
        if (test::isCaseDue()) checkDecode("noop", problem, {}, options);
      }
}

GPU_TEST_CASE("every tile of wide heads gives the reference's results", "[gpu]") {
  for (const char* tile : {"64x32x8", "64x16x8"})
    for (bool vInK : {true, false})
      checkDecode("softcap", {.shape = {3, 64, 1, 1, 3000}, .headDim = 576, .headDimV = 512, .vInK = vInK},
                  {3000, 1, 77}, {.family = Family::Sm90, .tile = tile});
}

GPU_TEST_CASE("parts of wide heads are merged, however sequences are divided", "[gpu]") {
  for (const char* name : {"noop", "causal", "document"}) {
    const auto check = [&](ProblemShape shape, std::vector<int32_t> lengths = {}) {
      checkDecode(name, {.shape = shape, .headDim = 576, .headDimV = 512, .vInK = true}, lengths,
                  {.family = Family::Sm90});
    };
    check({1, 16, 1, 1, 16384});
    check({1, 128, 1, 2, 8192});
    check({70, 64, 1, 1, 600});
    check({20, 128, 1, 1, 700}, {700, 1, 0, 350, 699, 32, 64, 500, 2, 3, 700, 700, 10, 400, 0, 0, 64, 65, 33, 31});
  }
}
