// `attnc probe`: its values against those computed here, next to the lines of the mod, and its errors.
#include "command.h"
#include "problem/safetensors.h"

#include <catch2/catch.hpp>

#include <cstring>

using namespace attnc;
using namespace attnc::test;
using Catch::Contains;

namespace {

const std::string kMods = ATTNC_SOURCE_DIR "/dsl/mods/";

std::string probe(const std::string& arguments) { return test::printed("probe " + arguments); }

cli::HostTensor floats(std::vector<int64_t> shape) {
  cli::HostTensor tensor = cli::HostTensor::make(DType::F32, std::move(shape));
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const float value = float(i % 13) / 8 - 0.5f;
    std::memcpy(tensor.bytes.data() + 4 * i, &value, 4);
  }
  return tensor;
}

float at(const cli::HostTensor& tensor, int64_t i) {
  float value;
  std::memcpy(&value, tensor.bytes.data() + 4 * i, 4);
  return value;
}

/// The number behind `start`, up to the end of the line or a blank.
float numberAfter(const std::string& text, const std::string& start) {
  const size_t begin = text.find(start);
  INFO(text << "\n" << start);
  REQUIRE(begin != std::string::npos);
  return std::stof(text.substr(begin + start.size()));
}

} // namespace

TEST_CASE("probe follows a score of the file's q and k through score_mod and mask_mod") {
  Folder folder;
  cli::NamedTensors tensors;
  tensors["q"] = floats({2, 4, 7, 16});
  tensors["k"] = floats({2, 2, 9, 16});
  tensors["slopes"] = floats({4});
  const std::string file = folder / "in.safetensors";
  REQUIRE(writeSafetensors(file, tensors));
  const std::string mod = kMods + "alibi.py --in " + file;
  const std::string text = probe(mod + " --at 1,3,6,2");
  double dot = 0; // head 3 of q reads head 1 of k
  for (int64_t d = 0; d < 16; ++d)
    dot += double(at(tensors["q"], ((1 * 4 + 3) * 7 + 6) * 16 + d)) * at(tensors["k"], ((1 * 2 + 1) * 9 + 2) * 16 + d);
  const float score = float(dot / 4), slope = at(tensors["slopes"], 3);
  CHECK(numberAfter(text, "score     ") == Approx(score));
  CHECK_THAT(text, Contains("  10 |     return score + slopes[h] * (kv_idx - q_idx)\n") && Contains(" = -4\n") &&
                       Contains("   slopes[3]\n") && Contains("scale * q[1, 3, 6] . k[1, 1, 2]\n"));
  CHECK(numberAfter(text, "  gives ") == Approx(score - 4 * slope));
  CHECK_THAT(text, Contains("  14 |     return q_idx >= kv_idx if CAUSAL else True\n") && Contains("gives True\n") &&
                       Contains("result    lives, score "));
  CHECK(numberAfter(probe(mod + " --at 1,3,6,2 --scale 2"), "score     ") == Approx(float(2 * dot)));
  CHECK(numberAfter(probe(mod + " --at 1,3,6,2 --score 1.5"), "  gives ") == Approx(1.5f - 4 * slope));
  CHECK_THAT(probe(mod + " --at 1,3,2,6"), Contains("result    masked: mask_mod gives False"));
}

TEST_CASE("probe says which element is read, and that an index outside is clamped") {
  Folder folder;
  cli::NamedTensors tensors;
  tensors["table"] = floats({3, 10});
  const std::string file = folder / "in.safetensors", mod = folder / "mod.py";
  REQUIRE(writeSafetensors(file, tensors));
  test::writeFile(
      mod, "table: f32[N, 10]\n\ndef score_mod(score, b, h, q_idx, kv_idx):\n    row = table[kv_idx, q_idx - 1]\n"
           "    return score + row\n");
  const auto read = [&](const std::string& place) { return probe(mod + " --score 0 --in " + file + " --at " + place); };
  CHECK_THAT(read("0,0,5,2"), Contains("   4 |     row = table[kv_idx, q_idx - 1]\n") && Contains("   table[2, 4]\n"));
  CHECK(numberAfter(read("0,0,5,2"), "  gives ") == at(tensors["table"], 24));
  CHECK_THAT(read("0,0,0,1"), Contains("table[kv_idx, q_idx - 1]") && Contains("   table[1, 9]\n")); // -1, from the end
  for (const char* ofWrap : {"where", " < 0", "+ 10"}) CHECK(read("0,0,0,1").find(ofWrap) == std::string::npos);
  CHECK_THAT(read("0,0,20,7"),
             Contains("   table[2, 9]; index 7 is clamped: the extent is 3; index 19 is clamped: the extent is 10\n"));
}

TEST_CASE("probe tells sums, expressions, masks of score_mod and mods without text") {
  Folder folder;
  const std::string mod = folder / "mod.py", ir = folder / "mod.ir";
  test::writeFile(mod, "import torch\ndef score_mod(score, b, h, q_idx, kv_idx):\n    return torch.where(q_idx >= "
                       "kv_idx, score, -float('inf'))\n");
  CHECK_THAT(probe(mod + " --at 0,0,1,2 --score 3"),
             Contains("gives -inf\n") && Contains("result    masked: score_mod gives -inf"));
  CHECK_THAT(probe(mod + " --at 0,0,2,2 --score 3"), Contains("gives 3\n") && Contains("result    lives, score 3\n"));
  CHECK_THAT(probe("--expr 'q_idx - kv_idx < 3' --at 0,0,5,1"),
             Contains("q_idx - kv_idx ") && Contains(" = 4\n") && Contains("gives False"));
  CHECK_THAT(test::attnc("probe " + kMods + "latent_rope.py --shape 64 --at 0,0,9,5 --score 0").out,
             Contains("sum(") && Contains("i0 < 64"));
  REQUIRE(test::attnc("emit " + kMods + "sliding_window.py --stage ir -o " + ir).exitCode == 0);
  const std::string text = probe(ir + " --set window=4 --at 0,0,9,5");
  CHECK_THAT(text, Contains("gives True"));
  CHECK(text.find(" | ") == std::string::npos);
  CHECK_THAT(test::shell("$ATTNC probe - --at 0,0,1,2 --score 3 < " + mod).out,
             Contains("<stdin> at b = 0") && Contains("   3 |"));
}

TEST_CASE("check tells what weight_mod computes") {
  CHECK_THAT(attnc::test::attnc("check " ATTNC_SOURCE_DIR "/dsl/mods/sigmoid.py").out,
             Contains("functions   weight_mod, mask_mod\n") &&
                 Contains("\noperations  weight_mod: 2 launch, 2 element\n"));
}

TEST_CASE("probe and check tell what prob_mod computes") {
  const std::string mod = "--expr 'lambda prob, b, h, q, k: prob * (k + 1)' ";
  CHECK_THAT(probe(mod + "--at 0,0,2,3"),
             Contains("\nprob_mod, of a weight of 1\n") && Contains("gives 4\n") && Contains("\nresult    lives\n"));
  CHECK_THAT(probe(mod + "--at 0,0,2,3 --json"), Contains("\"probMod\""));
  const std::string dropout = kMods + "dropout.py ";
  CHECK_THAT(test::attnc("probe " + dropout + "--at 0,0,2,3").out,
             Contains(" random(seed, b, h, q_idx, kv_idx) ") && Contains("  gives "));
  const std::string explained = test::printed("explain " + dropout + "--arch sm_90a");
  CHECK_THAT(explained, Contains("operations  prob_mod: 1 launch, 3 element\nper score   full blocks: 3 ("));
  CHECK_THAT(test::printed("check " + mod),
             Contains("functions   prob_mod\n") && Contains("\noperations  prob_mod: 2 column\n"));
}

TEST_CASE("probe refuses places and scores that are not there") {
  const std::string alibi = "probe " + kMods + "alibi.py ";
  test::checkRefused({
      {2, alibi, "--at is required"},
      {2, alibi + "--at 0,0,1", "needed are the numbers b,h,q_idx,kv_idx"},
      {2, alibi + "--at 0,0,1,-1", "'-1' is no number"},
      {2, alibi + "--at 0,16,1,1 --score 1", "h 16 is not there: H is 16"},
      {2, alibi + "--at 0,0,64,1 --score 1 --shape 64,70", "q_idx 64 is not there: Q_LEN is 64"},
      {2, alibi + "--at 0,0,1,1", "score_mod reads the score, and none is given"},
      {2, alibi + "--at 0,0,1,1 --score x", "--score"},
      {3, alibi + "--at 0,0,1,1 --in /no/such/file", "/no/such/file"},
  });
}
