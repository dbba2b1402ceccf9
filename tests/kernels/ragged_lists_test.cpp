// Forward kernels of ragged batches with a block mask: compiled, and run on the host. There, their generated text runs
// with the parameters that a launch would have, on a stand-in for the GPU (host_gpu.h).
#include "helpers/ragged_lists.h"

#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "kernels/findings.h"
#include "kernels/host_launch.h"
#include "support/ceil_div.h"
#include "templates/params_sm90.cuh"

using namespace attnc;
using test::kOtherLengths;
using test::kRaggedLengths;

namespace {

void launch(const Mod& mod, const KernelOptions& options, const Operands& operands, const Outputs& outputs,
            unsigned seed) {
  const std::string space = options.family == Family::Naive  ? "naive"
                            : options.family == Family::Sm80 ? "sm80"
                                                             : "sm90";
  test::launchOnHost(mod, options, operands, outputs, {.seed = seed}, [&](const plan::Stage& stage) {
    return stage.templateName == "append.cu"     ? "Cached<ForwardParams>"
           : stage.templateName == "low_rank.cu" ? "LowRankParams"
                                                 : space + "::Params";
  });
}

void check(test::RaggedCase c, unsigned seed = 3) {
  if (!test::isCaseDue()) return;
  c.heads = 2, c.kvHeads = 1;
  INFO(c.text());
  auto mod = take(Mod::parse(c.mod));
  test::RaggedBatch batch(c);
  test::RaggedResults results(c, batch.rows(), DType::BF16);
  const Operands operands = batch.operands();
  KernelOptions options = optionsOf(operands, results.outputs(), {.arch = "sm_90a"});
  options.family = c.family;
  if (c.mod.find("torch.cos") != std::string::npos)
    CHECK(take(test::choosePlan(mod, options)).lowRank.rfind("rank 8", 0) == 0);
  launch(mod, options, operands, results.outputs(), seed);
  test::checkRagged(c, batch, results);
}

} // namespace

TEST_CASE("kernels of ragged batches walk the lists of each sequence", "[on-host]") {
  for (Family family : {Family::Naive, Family::Sm80, Family::Sm90}) {
    check({.family = family, .qLengths = kRaggedLengths});
    check({.family = family, .qLengths = kRaggedLengths, .kvLengths = kOtherLengths, .perHead = false});
    check({.family = family, .qLengths = kOtherLengths, .mod = "q_idx >= kv_idx", .qBlock = 256});
  }
  check({.family = Family::Sm90, .qLengths = kRaggedLengths, .perSequence = false});
  check({.family = Family::Sm90, .qLengths = kRaggedLengths, .mod = "score", .kvBlock = 64});
  check({.family = Family::Sm80, .qLengths = kRaggedLengths, .headDim = 40, .qBlock = 64, .kvBlock = 64});
}

TEST_CASE("low-rank terms of ragged batches are columns of q and k", "[on-host][low_rank]") {
  for (bool perHead : {false, true})
    for (Family family : {Family::Sm80, Family::Sm90})
      for (int headDim : {64, 40}) // further columns of q and k apart on Hopper, or behind copies
        check({.family = family,
               .qLengths = kRaggedLengths,
               .kvLengths = kOtherLengths,
               .mod = test::lowRankMod(perHead),
               .headDim = headDim,
               .hasLists = false});
}

TEST_CASE("kernels of ragged batches walk lists over pages, to which rows are appended", "[on-host]") {
  for (Family family : {Family::Naive, Family::Sm80, Family::Sm90})
    for (bool appends : {false, true})
      check({.family = family,
             .qLengths = {1, 0, 130, 1, 7},
             .kvLengths = {200, 0, 130, 3, 129},
             .mod = "(q_idx + kv_idx) % 5 != 0",
             .pageSize = appends ? 16 : 64,
             .appends = appends});
  for (bool appends : {false, true})
    check({.qLengths = {1, 0, 130, 1, 7},
           .kvLengths = {200, 0, 130, 3, 129},
           .dtype = DType::E4M3,
           .pageSize = 16,
           .appends = appends,
           .perHead = false});
}

TEST_CASE("kernels draw the reference's numbers in ragged batches, on any tiles and pages", "[on-host]") {
  for (Family family : {Family::Naive, Family::Sm80, Family::Sm90}) {
    check({.family = family, .qLengths = kRaggedLengths, .mod = "random(7, b, h, q_idx, kv_idx) < 0.5"});
    check({.family = family,
           .qLengths = {1, 0, 130, 1, 7},
           .kvLengths = {200, 0, 130, 3, 129},
           .mod = "score + 4 * random(-7, b, h, q_idx, kv_idx)",
           .pageSize = 16});
  }
}

TEST_CASE("kernels multiply weights by the factors of prob_mod, and sum up those of the softmax", "[on-host]") {
  const std::string dropout = "def prob_mod(prob, b, h, q_idx, kv_idx):\n"
                              "  return where(random(7, b, h, q_idx, kv_idx) < 0.25, 0.0, prob / 0.75)\n";
  const std::string causal = "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n";
  for (Family family : {Family::Naive, Family::Sm80, Family::Sm90}) {
    check({.family = family, .qLengths = kRaggedLengths, .mod = dropout});
    check({.family = family, .qLengths = kRaggedLengths, .kvLengths = kOtherLengths, .mod = dropout + causal});
    check({.family = family,
           .qLengths = {1, 0, 130, 1, 7},
           .kvLengths = {200, 0, 130, 3, 129},
           .mod = dropout + causal,
           .pageSize = 16});
  }
}

TEST_CASE("a second walk takes lists, and pages to which rows are appended", "[on-host]") {
  const std::string square = "import torch\ndef prob_mod(prob, b, h, q_idx, kv_idx):\n  return 8 * prob * prob - "
                             "torch.relu(prob - 0.02)\n",
                    causal = "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n";
  for (Family family : {Family::Naive, Family::Sm80, Family::Sm90}) {
    check({.family = family, .qLengths = kRaggedLengths, .mod = square});
    check({.family = family, .qLengths = kRaggedLengths, .kvLengths = kOtherLengths, .mod = square + causal});
    for (bool appends : {false, true})
      check({.family = family,
             .qLengths = {1, 0, 130, 1, 7},
             .kvLengths = {200, 0, 130, 3, 129},
             .mod = square + causal,
             .pageSize = 16,
             .appends = appends});
  }
}

TEST_CASE("V of small pages arrives before its products, and stays until they end, in any order of threads",
          "[on-host]") {
  for (unsigned seed = 0; seed < 6; ++seed)
    check({.family = Family::Sm90,
           .qLengths = {130, 1},
           .kvLengths = {1000, 900},
           .mod = "q_idx >= kv_idx",
           .pageSize = seed % 2 ? 8 : 16},
          seed);
}

NVRTC_TEST_CASE("kernels of ragged batches with lists compile without spills or advisories", "[kernels]") {
  std::vector<test::Job> jobs;
  for (const auto& [name, mod] : test::library())
    for (int pageSize : {0, 16}) {
      const bool isWhole = name == "alibi" || name == "document";
      if (!mod.hasMaskMod()) continue;
      const auto add = [&, &name = name, &mod = mod](KernelOptions options) {
        options.features.set(Feature::Ragged);
        options.features.set(Feature::Lengths, pageSize != 0);
        options.features.set(Feature::Appends, pageSize != 0);
        options.offsets = QueryOffsets::FromLengths;
        options.pageSize = pageSize;
        options.blockSparse = true;
        // NOTE: the clamps of starts and lengths take registers that alibi's row at head dim 256 has not.
        const bool spills = name == "alibi" && options.family == Family::Sm90 && options.headDim == 256;
        jobs.push_back({fmt::format("{} {} {} {} d{}, pages of {}", name, familyName(options.family), options.arch,
                                    dtypeName(options.dtype), options.headDim, pageSize),
                        mod, options, spills ? 60 : 0});
      };
      for (int dim : {64, 128, 256}) {
        if (!isWhole && dim != 128) continue;
        for (Features features : {Features{}, Features{Feature::Fp8Q, Feature::Fp8Kv}})
          add({.family = Family::Sm90, .arch = "sm_90a", .headDim = dim, .features = features});
        for (const char* arch : {"sm_80", "sm_120"}) add({.family = Family::Sm80, .arch = arch, .headDim = dim});
      }
      if (!isWhole) continue;
      add({.family = Family::Sm80, .arch = "sm_80", .dtype = DType::F32, .headDim = 96});
      add({.family = Family::Naive, .arch = "sm_80", .headDim = 64});
    }
  REQUIRE(jobs.size() > 40);
  CHECK(test::findings(jobs) == "");
}
