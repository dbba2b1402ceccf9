// `attnc explain`: counts against closed formulas, which kernel is named, and wrong usage.
#include "command.h"
#include "helpers/plan_parts.h"
#include "problem/safetensors.h"
#include "show/explanation.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <optional>
#include <regex>
#include <sys/resource.h>

using namespace attnc;
using namespace attnc::test;
using Catch::Contains;

namespace {

const std::string kMods = ATTNC_SOURCE_DIR "/dsl/mods/";

/// The text of a run that succeeds; skips the test where there is no NVRTC.
std::optional<std::string> explain(const std::string& arguments) {
  Outcome outcome = test::attnc("explain --no-cache " + arguments);
  if (outcome.exitCode == 3 && outcome.err.find("nvrtc") != std::string::npos) {
    WARN("SKIPPED: " << outcome.err);
    return std::nullopt;
  }
  INFO("attnc explain " << arguments << "\n" << outcome.err);
  REQUIRE(outcome.exitCode == 0);
  CHECK(outcome.err.empty());
  return outcome.out;
}

/// The count in the line "            live            2080   50.8 %".
int64_t blocks(const std::string& text, const std::string& kind) {
  std::smatch match;
  INFO(text);
  REQUIRE(std::regex_search(text, match, std::regex("\n +" + kind + " +([0-9]+) ")));
  return std::stoll(match[1]);
}

std::string work(const Mod& mod, const ProblemShape& problem, const BlockMaskShape& shape) {
  auto census = take(takeCensus(mod, {}, problem, shape));
  return cli::workText(
      census, {},
      {.kernel = test::planWith(mod, {.headDim = 64, .headDimV = 32}, KvLoop::BlockMask), .problem = problem},
      mod.hasMaskMod());
}

Explanation madeUp(const KernelOptions& options, std::vector<KernelSource> sources, CompiledStages compiled) {
  const Plan plan = test::planWith(Mod::identity(), options, KvLoop::AllTiles);
  return {Mod::identity(), {.kernel = plan}, std::move(sources), std::move(compiled), {}, {}};
}

} // namespace

TEST_CASE("explain says how a low-rank term is computed, or why it stays in the mod") {
  const std::string of = "--arch sm_90a --shape 1,2,2,256,256 " + kMods + "latent_rope.py";
  if (auto text = explain(of)) {
    CHECK_THAT(*text, Contains("\nlow rank    rank 64: 64 columns of q and k (head dim 192), exact, if "));
    CHECK_THAT(*text, Contains("per score   full blocks: 0\n"));
    CHECK_THAT(*text, Contains("head dims 128 and 128"));
  }
  if (auto text = explain("--dtype fp16 " + of)) {
    CHECK_THAT(*text, Contains("\nlow rank    not in columns: the range of f16 may not hold the factors\n"));
    CHECK_THAT(*text, Contains("per score   full blocks: 258 "));
  }
  if (auto text = explain("--json " + of)) CHECK_THAT(*text, Contains("\"lowRank\": \"rank 64: "));
  if (auto text = explain("--kernel backward " + of)) {
    CHECK_THAT(*text, Contains("\nlow rank    rank 64: 64 columns of q and k (head dim 192), exact, if "));
    CHECK_THAT(*text, Contains("low_rank_gradients.cu"));
    CHECK_THAT(*text, Contains("d_key_rope: from further columns of dq or dk"));
    CHECK_THAT(*text, Contains("d_scale: one addition to memory a tile\n"));
    CHECK_THAT(*text, !Contains("spilled to memory"));
  }
  if (auto text = explain("--arch sm_90a --expr score")) CHECK_THAT(*text, !Contains("low rank"));
  const std::string f32 = "--arch sm_90a --shape 1,2,2,256,256 --capture \"u: f32[Q_LEN, 64]\" --capture "
                          "\"w: f32[KV_LEN, 64]\" --expr \"score + u[q_idx] @ w[kv_idx]\"";
  if (auto text = explain(f32)) {
    CHECK_THAT(*text, Contains("; with lowRankError 0.0039 it can be 256, with captures"));
    CHECK_THAT(*text, !Contains("\nchoices "));
  }
  if (auto text = explain("--low-rank-error 0.0039 " + f32)) {
    CHECK_THAT(*text, Contains("\nlow rank    rank 64: 128 columns of q and k (head dim 256), to 2^-8\n"));
    CHECK_THAT(*text, Contains("\nchoices     low-rank-error 0.0039\n"));
  }
}

TEST_CASE("explain names kernel, tile and resources of a causal mod on Hopper") {
  auto text = explain("--arch sm_90a --shape 2,4,2,1000,1000 --expr 'q_idx >= kv_idx'");
  if (!text) return;
  for (const char* part :
       {"mask_mod", "captures    none", "family sm90 for sm_90a (forward_sm90.cu), bf16", "128 x 128 (q rows",
        "384 threads", " registers, 0 bytes spilled, ", "advisories  none", "others go to family sm80",
        "B 2, H 4, HKV 2, Q_LEN 1000, KV_LEN 1000", "bounds computed by the mod",
        "the same in all batch entries and heads", "mask_mod: 1 element", "full blocks: 0\n",
        "partial blocks: 0 + a select by the bounds of its row"})
    CHECK_THAT(*text, Contains(part));
  // Eight block rows, the last of 104 rows: its diagonal block, and every block that crosses an end, is partial.
  CHECK(blocks(*text, "live") == 36);
  CHECK(blocks(*text, "partial") == 8 + 7);
  CHECK(blocks(*text, "full") == 36 - 15);
  CHECK(blocks(*text, "empty") == 64 - 36);
  const double pairs = 28 * 128.0 * 128.0 + 7 * 104.0 * 128.0 + 104.0 * 104.0;
  CHECK_THAT(*text, Contains(fmt::format("{:.2f} GFLOP dense, {:.2f} GFLOP in live blocks", 8 * 512e6 * 1e-9,
                                         8 * 512 * pairs * 1e-9)));
}

TEST_CASE("explain tells the least memory traffic of a pass, and its FLOPs by these") {
  for (const auto& [options, line] :
       {std::tuple("--shape 4,16,2,3,5000 --expr 'q_idx >= kv_idx'",
                   "10.29 MB at least: q, out, and live blocks of k and v, once; 23.89 FLOP/byte\n"),
        {"--shape 4,16,2,3,5000 --expr 'q_idx >= kv_idx' --fp8-kv", "5.17 MB at least: q, out, and live blocks"},
        {"--shape 4,16,2,3,5000 --expr 'q_idx >= kv_idx' --kernel forward", "10.29 MB at least: q, k, v and out, once"},
        {"--shape 4,16,2,3,5120 --expr 'q_idx - kv_idx < 512'", "1.36 MB at least: q, out, and live blocks"},
        {"--shape 4,16,16,512,5000 --expr 'q_idx >= kv_idx' --kernel backward",
         "180.75 MB at least: q, k, v, out, lse and gradients, once; "}}) {
    INFO(options);
    if (auto text = explain(std::string("--arch sm_90a --head-dim 64 --q-offset lengths ") + options))
      CHECK_THAT(*text, Contains(std::string("\nbytes       ") + line));
  }
}

TEST_CASE("explain says why few queries get a decode kernel, what it divides, and why others do not") {
  const std::string causal = "--arch sm_90a --head-dim 64 --expr 'q_idx >= kv_idx' --q-offset lengths ";
  auto text = explain(causal + "--shape 4,16,2,3,5000");
  if (!text) return;
  for (const char* part : {"family sm90 for sm_90a (decode_sm90.cu)", "tile        32 x 128 (q rows",
                           "choice      decode: K and V are read once for the 24 rows of q that share a KV head",
                           "division    8 tiles of rows (query x head of a KV head), of at most 40 steps along KV",
                           "bounds computed by the mod", "K and V     10.24 MB, 100.0 % of them in live blocks\n"})
    CHECK_THAT(*text, Contains(part));
  for (const auto& [options, kernel, choice] :
       {std::tuple("--shape 4,16,2,3,500", "forward_sm90.cu", "choice      forward: KV_LEN 500, decode"),
        {"--shape 4,16,2,3,5000 --kernel forward", "forward_sm90.cu", ""},
        {"--shape 4,16,2,300,300 --kernel decode", "decode_sm90.cu", ""},
        {"--shape 4,16,2,3,5000 --page-size 1", "decode_sm80.cu", "choice      decode: "},
        {"--shape 4,16,2,1,300 --fp8-kv", "bf16 with k and v of e4m3", ""}}) {
    auto other = explain(causal + options);
    INFO(options);
    REQUIRE(other);
    CHECK_THAT(*other, Contains(kernel) && Contains(choice));
    CHECK((other->find("choice ") == std::string::npos) == std::string(choice).empty());
  }
}

TEST_CASE("explain counts k once if v is a view of it, of all its columns or of fewer") {
  for (const char* columns : {"512", "504"}) {
    const auto text =
        explain("--arch sm_90a --expr score --head-dim 512 --shape 32,128,1,1,4096 --v-in-k " + std::string(columns));
    if (!text) return;
    CHECK_THAT(*text, Contains("K and V     134.22 MB") && Contains("the model: 64x32x8\n"));
  }
  const auto own = take(explain("--arch sm_90a --expr score --head-dim 512 --shape 32,128,1,1,4096"));
  CHECK_THAT(own, Contains("K and V     268.44 MB"));
}

TEST_CASE("explain names the family that takes other layouts, if one does") {
  for (auto [options, others] : {std::pair("--dtype e4m3", "others go to family sm80\n"),
                                 {"--dtype e4m3 --row-scales", "others are an error\n"},
                                 {"--kernel backward", "others go to family sm80\n"},
                                 {"--kernel-family sm90", "others are an error\n"},
                                 {"--head-dim 576 --v-in-k 512", "others are an error\n"}}) {
    const auto text = explain("--arch sm_90a --expr score --shape 1,8,8,256,256 " + std::string(options));
    if (!text) return;
    INFO(options);
    CHECK_THAT(*text, Contains(others));
  }
}

TEST_CASE("explain counts the boxes that a kernel on a grid visits") {
  const std::string neighborhood = "--arch sm_90a --head-dim 64 " + kMods + "neighborhood2d.py ";
  auto text = explain(neighborhood + "--shape 2,4,2,16384,16384");
  if (!text) return;
  for (const char* part :
       {"family grid for sm_90a (forward_grid_sm90.cu), bf16", "boxes of keys that queries see, computed by the mod",
        " queries; ", " keys are read, ", "partial blocks: 0 + a select by the box of its row, in place of mask_mod"})
    CHECK_THAT(*text, Contains(part));
  CHECK(text->find("blocks      ") == std::string::npos);
  // Each query sees 13 x 13 keys.
  CHECK_THAT(*text, Contains(fmt::format("{:.2f} GFLOP of them in boxes of queries", 8 * 16384 * 169 * 256e-9)));
  CHECK_THAT(*text, Contains("others go to family sm90\n"));
  auto dilated = take(explain(neighborhood + "-D 'DILATION=(2, 2)' --shape 1,1,1,16384,16384"));
  CHECK_THAT(dilated, Contains("family grid") && Contains("per score   all blocks: ") && Contains(" + a select\n"));
  auto beside = take(explain(neighborhood + "--shape 1,1,1,16384,16400"));
  CHECK_THAT(beside, Contains("forward_sm90.cu; a grid of 128 x 128 has 16384 tokens, KV_LEN is 16400") &&
                         Contains("block mask: lists"));
  // Text and an image: text sees all and is seen by all, the rest 17 x 17 keys.
  auto joint = take(explain("--arch sm_90a --head-dim 64 " + kMods + "joint_image.py --shape 1,4,4,4608,4608"));
  CHECK_THAT(joint, Contains("family grid") &&
                        Contains("a key that lies in its box, or that it sees beside the grid") &&
                        Contains(fmt::format("{:.2f} GFLOP of them in boxes of queries or beside them",
                                             4 * (512 * 4608 + 4096 * (512 + 289)) * 256e-9)));
  auto training = take(explain("--arch sm_90a --head-dim 64 " + kMods +
                               "joint_image.py --kernel backward --kernel-family grid --shape 1,4,4,4608,4608"));
  CHECK_THAT(training, Contains("backward_grid_sm90.cu") &&
                           Contains("boxes       144 of 8 x 16 keys; ") && // 4 (32 + 4)
                           Contains(fmt::format("{:.2f} GFLOP of them in boxes of queries or beside them",
                                                4 * (512 * 4608 + 4096 * (512 + 289)) * 640e-9)));
  auto elsewhere = take(explain("--arch sm_89 --head-dim 64 " + kMods + "neighborhood2d.py --shape 2,4,2,16384,16384"));
  CHECK_THAT(elsewhere,
             Contains("family grid for sm_89 (forward_grid_sm80.cu), bf16") &&
                 Contains("layouts     any strides, the last one 1\n") &&
                 Contains(fmt::format("{:.2f} GFLOP of them in boxes of queries", 8 * 16384 * 169 * 256e-9)));
  auto backward = take(explain(neighborhood + "--kernel backward --shape 1,1,1,16384,16384"));
  CHECK_THAT(backward,
             Contains("backward_grid_sm90.cu") && Contains("partial blocks: 0 + a select by the box of its row"));
  CHECK_THAT(backward, Contains("boxes       128 of 8 x 16 keys; 640 of 4 x 32 queries are read, 5.0 for one of keys"));
  CHECK_THAT(backward, Contains(fmt::format("{:.2f} GFLOP of them in boxes of queries", 16384 * 169 * 640e-9)));
  auto backwardElsewhere =
      explain("--arch sm_89 --head-dim 64 " + kMods + "neighborhood2d.py --kernel backward --shape 1,1,1,16384,16384");
  REQUIRE(backwardElsewhere);
  CHECK_THAT(*backwardElsewhere,
             Contains("family grid for sm_89 (backward_delta.cu, backward_grid_sm80.cu, backward_grid_finish_sm80.cu, "
                      "backward_large.cu)") &&
                 Contains("boxes       128 of 8 x 16 keys; 2496 of 32 queries are read, 19.5 for one of keys") &&
                 Contains(fmt::format("{:.2f} GFLOP of them in boxes of queries", 16384 * 169 * 640e-9)));
  auto shared = explain(neighborhood + "--kernel backward --shape 1,8,2,16384,16384"); // a box of keys for four heads
  REQUIRE(shared);
  CHECK_THAT(*shared,
             Contains("boxes       256 of 8 x 16 keys; 5120 of 4 x 32 queries are read, 20.0 for one of keys"));
  auto byLists = take(explain(neighborhood + "--kernel backward --kernel-family sm90 --shape 1,1,1,16384,16384"));
  CHECK_THAT(byLists, Contains("block mask: lists") && Contains("blocks      16384 of 128 x 128"));
}

TEST_CASE("explain says which steps a decode kernel of documents reads") {
  test::Folder folder;
  cli::NamedTensors tensors;
  tensors["q"] = cli::HostTensor::make(DType::BF16, {2, 4, 1, 64});
  tensors["k"] = tensors["v"] = cli::HostTensor::make(DType::BF16, {2, 2, 1024, 64});
  tensors["document_id"] = cli::HostTensor::make(DType::I32, {1024});
  for (int64_t i = 768; i < 1024; ++i) tensors["document_id"].bytes[size_t(4 * i)] = 1;
  const std::string file = folder / "in.safetensors";
  REQUIRE(writeSafetensors(file, tensors));
  auto text = explain(kMods + "document.py --arch sm_80 --q-offset lengths --in " + file);
  if (!text) return;
  for (const char* part : {"(decode_lists.cu, decode_sm80.cu)", "launch      1 of 2: attnc_decode_lists",
                           "lists of the blocks that live, which each launch makes first",
                           "choice      decode: ", "K and V     1.05 MB, 25.0 % of them in live blocks\n"})
    CHECK_THAT(*text, Contains(part));
}

TEST_CASE("explain of an older GPU or of fp32 names sm80, with bounds or a block mask") {
  auto text =
      explain(kMods + "sliding_window.py --arch sm_80 --dtype fp16 --head-dim 64 --pin window=256 --pin Q_LEN=512");
  if (!text) return;
  for (const char* part :
       {"family sm80 for sm_80", "f16, head dims 64 and 64", "bounds computed by the mod", "Q_LEN 512",
        "values      window = 256\n", "any strides", "partial blocks: 0 + a select by the bounds of its row"})
    CHECK_THAT(*text, Contains(part));
  // Row blocks see 1, 2, 3 and 3 blocks of columns: 256 back is the block two before, by its upper triangle.
  CHECK(blocks(*text, "live") == 9);
  CHECK(blocks(*text, "full") == 3);
  // What no option gives is drawn, and said to be.
  auto drawn = take(explain(kMods + "sliding_window.py --arch sm_80 --head-dim 64 --shape 1,1,1,512,512"));
  CHECK(std::regex_search(drawn, std::regex("values      window = [0-9]+; drawn without --set: window\n")));
  auto fp32 = take(explain("--arch sm_90a --dtype fp32 --head-dim 64 --expr score --shape 1,1,1,128,128"));
  CHECK(fp32.find("values") == std::string::npos);
  CHECK_THAT(fp32, Contains("sm90 takes no f32") && Contains("all tiles: the mod masks nothing"));
  CHECK(blocks(fp32, "full") == 1);
  CHECK(fp32.find("cut by") == std::string::npos);
  auto ragged = take(explain("--arch sm_90a --dtype fp32 --head-dim 64 --expr score --shape 1,1,1,200,128"));
  CHECK(blocks(ragged, "partial") == 1);
  CHECK_THAT(ragged, Contains("cut by the ends of the lengths"));
}

TEST_CASE("explain of a backward kernel names the gradients of sums that it reads, and why no faster one does") {
  const std::string texts = "def weight(prob, score, b, h, q_idx, kv_idx):\n    return prob\n"
                            "def penalty(prob, score, b, h, q_idx, kv_idx):\n    return score * score\n"
                            "def score_mod(score, b, h, q_idx, kv_idx):\n    return score\n";
  Folder folder;
  const std::string weights = folder / "weights.py", scores = folder / "scores.py",
                    options = " --kernel backward --arch sm_90a --shape 1,2,2,256,256";
  test::writeFile(weights, texts + "sums: f32[B, H, KV_LEN] = reduce_sum(weight)\n");
  test::writeFile(scores, texts + "size: f32[B, H] = reduce_sum(penalty)\ntop: f32[B, H] = reduce_max(penalty)\n");
  const auto fast = explain(weights + options), slow = explain(scores + options + " --json"),
             unread = explain(scores + options + " --gradients none");
  if (!fast) return;
  CHECK_THAT(*fast, Contains("kernel      family sm90 for sm_90a (reductions_sm90.cu, backward_delta.cu, "));
  CHECK_THAT(*fast, Contains("\nreads       sums_gradient: f32[B, H, KV_LEN], which"));
  CHECK_THAT(*slow, Contains("\"passedOver\": \"sm90 takes no gradients of outputs that read scores\""));
  CHECK_THAT(*slow, Contains("\"outputGradients\": [\n      \"size_gradient\"\n    ]"));
  CHECK_THAT(*unread, Contains("kernel      family sm90 for sm_90a (backward_delta.cu, "));
  CHECK_THAT(*unread, !Contains("\nreads"));
}

TEST_CASE("explain of a backward kernel names its launches, and what a gradient costs a score") {
  const std::string softcap =
      "--kernel backward --arch sm_80 --head-dim 64 --shape 1,2,2,256,256 " + kMods + "softcap.py ";
  auto text = explain(softcap + "--gradients none");
  if (!text) return;
  for (const char* part :
       {"family sm80 for sm_80 (backward_delta.cu, backward_sm80.cu, backward_finish_sm80.cu, backward_large.cu)",
        "launch      2 of 4: attnc_backward of backward_sm80.cu\ntile        32 x 64 (q rows x kv columns)",
        " registers, 0 bytes spilled, ", "bounds computed by the mod", "operations  score_mod: 3 element\n",
        "operations  d_score: 3 element, beside those of score_mod\n", "per score   full blocks: 1 (tanh)\n",
        "\n            gradient: "})
    CHECK_THAT(*text, Contains(part));
  // Five products where the forward has two; three of four blocks live, 256 pairs of each diagonal one do not.
  CHECK_THAT(*text, Contains(fmt::format("{:.3f} MFLOP dense, {:.3f} MFLOP in live blocks",
                                         2.5 * 256 * 2 * 65536 * 1e-6, 2.5 * 256 * 2 * 3 * 16384 * 1e-6)));
  CHECK_THAT(*text, !Contains("\ngradients   "));
  auto captures = take(explain(softcap));
  CHECK_THAT(captures,
             Contains("launch      5 of 6: attnc_backward_captures of backward_captures.cu\ntile        64 x ") &&
                 Contains("\ngradients   d_cap: one addition to memory a tile\n"));
  auto stopped =
      take(explain("--kernel bwd --arch sm_80 --kernel-family naive --head-dim 64 --shape 1,1,1,200,128 --expr "
                   "'score.detach() * score'"));
  CHECK_THAT(stopped, Contains("family naive for sm_80 (backward_naive.cu), ") &&
                          Contains("operations  d_score: 1 element, beside those of score_mod\n") &&
                          Contains("all tiles: the mod masks nothing") && Contains("gradient: 1 (mul) more"));
  auto document =
      take(explain("--kernel backward --arch sm_80 --kernel-family naive --head-dim 64 --shape 1,1,1,256,256 " + kMods +
                   "document.py"));
  CHECK_THAT(document, Contains("block mask: lists of the partial and the full blocks") &&
                           Contains("partial blocks: 3 (and, eq, le) + a select\n") &&
                           Contains("operations  d_score: none\n") && Contains("gradient: 0 more"));
}

TEST_CASE("explain says how gradients of captures are added up") {
  Folder folder;
  const std::string mod = folder / "m.py";
  test::writeFile(
      mod, "a: f32[H]\nb: f32[Q_LEN]\nc: f32[KV_LEN]\nd: f32[512]\ne: f32[H, Q_LEN, KV_LEN]\nf: f32[64]\n"
           "g: f32[Q_LEN, 32]\nunread: f32[H]\n"
           "def score_mod(s, batch, h, q, kv):\n"
           "    return s * a[h] + b[q] * b[kv] + c[kv] + d[q - kv] + e[h, q, kv] + f[(q * kv) % 64] + g[q] @ g[q]\n");
  auto text =
      explain("--kernel backward --arch sm_80 --head-dim 64 --shape 1,2,2,256,256 --gradients a,b,c,d,e,f,g,unread "
              "--no-warn unused-capture " +
              mod);
  if (!text) return;
  CHECK_THAT(*text, Contains("\ngradients   d_a: one addition to memory a tile\n"
                             "            d_b: one addition to memory a row of a tile\n"
                             "            d_b: one addition to memory a column of a tile\n"
                             "            d_c: one addition to memory a column of a tile\n"
                             "            d_d: one addition to memory a diagonal of a tile\n"
                             "            d_e: each score of a head has an element of its own\n"
                             "            d_f: one addition to memory a score\n"
                             "            d_g: one addition to memory a row of a tile, for each term of a sum\n"));
  CHECK_THAT(*text, Contains("            d_unread: 0: no gradient arrives\n"));
  auto hopper =
      take(explain("--kernel backward --arch sm_90a --head-dim 64 --shape 1,2,2,256,256 " + kMods + "alibi.py"));
  CHECK_THAT(hopper,
             Contains("of backward_diagonals.cu") && !Contains("backward_captures.cu") &&
                 Contains("\ngradients   d_slopes: from sums along diagonals, which the kernel of dk and dv makes\n"));
}

TEST_CASE("explain takes the problem from a file") {
  Folder folder;
  cli::NamedTensors tensors;
  tensors["q"] = cli::HostTensor::make(DType::F16, {1, 2, 256, 64});
  tensors["k"] = cli::HostTensor::make(DType::F16, {1, 1, 256, 64});
  tensors["v"] = cli::HostTensor::make(DType::F16, {1, 1, 256, 32});
  tensors["document_id"] = cli::HostTensor::make(DType::I32, {256}); // one document
  const std::string file = folder / "in.safetensors";
  REQUIRE(cli::writeSafetensors(file, tensors));
  auto text = explain(kMods + "document.py --arch sm_80 --in " + file);
  if (!text) return;
  CHECK_THAT(*text, Contains("f16, head dims 64 and 32") && Contains("H 2, HKV 1, Q_LEN 256"));
  CHECK(blocks(*text, "live") == 3);
  CHECK(blocks(*text, "full") == 1);
}

TEST_CASE("wrong usage of explain is told by its exit code") {
  const std::string causal = "--expr 'q_idx >= kv_idx' ", window = kMods + "sliding_window.py ";
  for (const auto& [exitCode, arguments, message] :
       {test::Refusal{2, "", "MOD"},
        {2, causal + "--shape 1,2,3", "B,H,HKV,Q_LEN,KV_LEN"},
        {2, causal + "--shape 1,3,2,8,8", "multiple of HKV"},
        {2, causal + "--head-dim 12", "multiple of 8"},
        {2, causal + "--kernel block-mask", "'block-mask' is none of auto, forward, decode, backward"},
        {2, causal + "--kernel decode --kernel-family naive", "the naive family has no decode kernels"},
        {2, causal + "--kernel forward --fp8-kv", "k and v are e4m3, and q is bf16: only decode"},
        {2, causal + "--arch sm_80 --kernel backward --kernel-family sm90", "sm90"},
        {2, causal + "--kernel backward --tf32", "tf32"},
        {2, causal + "--kernel backward --fp8-kv", "k and v are e4m3, of which there is no backward pass"},
        {2, causal + "--head-dim 576 --v-in-k 512 --dtype fp32", "head dims above 256 are not supported in f32"},
        {2, causal + "--in a --shape 1,1,1,8,8", "--shape"},
        {2, causal + "--set window=3", "captures nothing"},
        {1, "--expr 'q_idx >='", "<expr>:1:"},
        {2, causal + "--arch sm_00", "sm_00"},
        {2, causal + "--arch sm_80 --kernel-family sm90", "sm90"},
        {2, causal + "--shape 1,1,1,8,8 --pin KV_LEN=16", "KV_LEN"},
        {2, causal + "--pin LENGTH=16", "LENGTH"},
        {2, causal + "--seed -1", "--seed"},
        {2, window + "--shape 1,1,1,8,8 --pin window=4 --set window=5", "window"},
        {3, "--expr 'kv_idx < q_idx' --in /no/such/file", "/no/such/file"},
        {3, "/no/such/mod.py", "/no/such/mod.py"}})
    test::checkRefused("explain " + arguments, exitCode, message);
}

TEST_CASE("FLOPs in live blocks leave out what lies past the lengths, and count every head") {
  auto mod = take(Mod::parse("q_idx >= kv_idx"));
  ProblemShape problem{.batch = 3, .qHeads = 4, .kvHeads = 2, .qLen = 130, .kvLen = 200};
  // Rows below 128 see the first block; rows 128 and 129 see both, the second of 72 columns.
  const double pairs = 128 * 128 + 2 * 128 + 2 * 72, flops = 2.0 * (64 + 32) * 12;
  const std::string expected = fmt::format("FLOPs       {:.3f} MFLOP dense, {:.3f} MFLOP in live blocks",
                                           flops * 130 * 200 * 1e-6, flops * pairs * 1e-6);
  std::string shared = work(mod, problem, {.qLen = 130, .kvLen = 200});
  CHECK_THAT(shared,
             Contains(expected) && Contains("blocks      4 of 128 x 128; the same in all batch entries and heads"));
  std::string own = work(mod, problem, {.batch = 3, .heads = 4, .qLen = 130, .kvLen = 200});
  CHECK_THAT(own,
             Contains(expected) && Contains("blocks      48 of 128 x 128; every batch entry and head has its own"));
}

TEST_CASE("the largest problems are explained within a bound of memory") {
  const std::string most = "--no-cache --arch sm_90a --shape 16777216,16777216,16777216,16777216,16777216 ";
  for (const std::string& mod :
       {std::string("--expr 'q_idx >= kv_idx'"), kMods + "sliding_window.py", kMods + "document.py",
        kMods + "learned_bias.py", std::string("--expr '(q_idx * 7919 + kv_idx) % 10007 < 1 + b'"),
        std::string("--kernel backward --expr 'q_idx >= kv_idx'")}) {
    auto text = explain(most + mod);
    if (!text) return;
    INFO(*text);
    CHECK_THAT(*text, Contains("Q_LEN 16777216, KV_LEN 16777216") && Contains("live") && Contains("FLOPs"));
    CHECK((text->find("were sampled") != std::string::npos) == (text->find("about") != std::string::npos));
  }
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  CHECK(usage.ru_maxrss < 2 << 20); // KiB, of the largest child: 2 GiB
}

TEST_CASE("what is estimated is called so") {
  MaskCensus census{
      .shape = {.qLen = 8192, .kvLen = 8192}, .blocks = 4096, .live = 1234.4, .full = 100.2, .pairs = 1e7};
  const Preparation settled{.kernel = test::planWith(Mod::identity(), {.headDim = 64}, KvLoop::BlockMask),
                            .problem = {.qLen = 8192, .kvLen = 8192}};
  std::string exact = cli::workText(census, {}, settled, true);
  CHECK(exact.find("about") == std::string::npos);
  CHECK(exact.find("sampled") == std::string::npos);
  census.estimated = 4000;
  census.sampled = 50;
  std::string estimated = cli::workText(census, {}, settled, true);
  for (const char* part :
       {"live      about 1230", "partial   about 1130", "full       about 100", "empty     about 2860",
        "about 2.56 GFLOP in live blocks", "50 of 4000 undecided blocks (1.2 %) were sampled"})
    CHECK_THAT(estimated, Contains(part));
}

TEST_CASE("a problem without rows has no blocks and no share of them") {
  std::string text = work(Mod::identity(), {.qLen = 0, .kvLen = 5}, {.qLen = 0, .kvLen = 5});
  CHECK_THAT(text, Contains("blocks      0 of 128 x 128") && Contains("0.000 MFLOP in live blocks (0.0 %)"));
}

TEST_CASE("spills are an advisory") {
  CompiledKernel compiled;
  const auto text = [&] {
    return cli::kernelText(
        madeUp({.family = Family::Naive}, {KernelSource{}}, {std::make_shared<const CompiledKernel>(compiled)}),
        Family::Auto);
  };
  CHECK(cli::spillText(0).empty());
  CHECK_THAT(text(), Contains("0 bytes spilled") && Contains("advisories  none\n"));
  compiled.spillBytes = 24;
  compiled.advisories = {"C7510: something is slow"};
  CHECK_THAT(cli::spillText(24), Contains("24 bytes of registers are spilled"));
  CHECK_THAT(text(), Contains("advisories  24 bytes of registers are spilled") &&
                         Contains("\n            C7510: something is slow\n"));
}

TEST_CASE("a kernel of several launches is explained launch by launch") {
  const auto compiled = [](int registers) {
    CompiledKernel stage;
    stage.registers = registers;
    return std::make_shared<const CompiledKernel>(stage);
  };
  const KernelSource first{.entry = "attnc_first", .templateName = "first.cu", .threads = 256};
  const KernelSource second{.entry = "attnc_second",
                            .templateName = "second.cu",
                            .threads = 384,
                            .tileRows = 64,
                            .tileColumns = 32,
                            .warps = 8};
  const std::string text = cli::kernelText(
      madeUp({.family = Family::Sm90, .arch = "sm_90a"}, {first, second}, {compiled(40), compiled(168)}), Family::Auto);
  CHECK_THAT(text, Contains("family sm90 for sm_90a (first.cu, second.cu), bf16"));
  CHECK_THAT(text, Contains("launch      1 of 2: attnc_first of first.cu\ntile        none; 256 threads\n"
                            "resources   40 registers"));
  CHECK_THAT(text, Contains("launch      2 of 2: attnc_second of second.cu\n"
                            "tile        64 x 32 (q rows x kv columns); 8 warps compute, 384 threads\n"
                            "resources   168 registers"));
  CHECK_THAT(text, Contains("others go to family sm80\n"));
}
