// What the command says of gradients.
#include "cli/command.h"

#include <catch2/catch.hpp>

#include <filesystem>

using namespace attnc::test;
using Catch::Matchers::Contains;

namespace {
Outcome run(const std::string& arguments) { return attnc::test::attnc(arguments); }
} // namespace

TEST_CASE("emit prints every library mod with its gradients, as IR that reads back") {
  Folder folder;
  for (const auto& entry : std::filesystem::directory_iterator(ATTNC_SOURCE_DIR "/dsl/mods")) {
    if (entry.path().extension() != ".py") continue;
    INFO(entry.path());
    const Outcome gradients = run("emit --stage grad-ir -o " + folder / "mod.ir " + entry.path().string());
    CHECK(gradients.exitCode == 0);
    const std::string text = attnc::test::readFile(folder / "mod.ir");
    CHECK_THAT(text, Contains("output d_score(score, b, h, q_idx, kv_idx, grad) -> "));
    CHECK(run("emit --stage ir " + folder / "mod.ir").out == text);
  }
  CHECK_THAT(run("emit --stage grad-ir " ATTNC_SOURCE_DIR "/dsl/mods/learned_bias.py").out,
             Contains("output d_bias_0(score, b, h, q_idx, kv_idx, grad) -> %grad") && Contains("d_bias_0_index2"));
  CHECK_THAT(run("emit --stage grad-ir --pin KV_LEN=512 --expr 'score * KV_LEN'").out,
             Contains("mul f32 %grad, 512.0"));
  CHECK_THAT(run("emit --help").out, Contains("grad-ir"));
}

TEST_CASE("emit gives backward kernels whole, or one launch of them") {
  const std::string emit =
      "emit --kernel backward --arch sm_80 --head-dim 64 " ATTNC_SOURCE_DIR "/dsl/mods/softcap.py ";
  const auto count = [](const std::string& text, const std::string& part) {
    int found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  };
  const std::string whole = run(emit + "--stage cu").out;
  CHECK(count(whole, "__global__") == 6);
  for (int launch = 1; launch <= 6; ++launch) {
    const std::string one = run(emit + "--stage cu --launch " + std::to_string(launch)).out;
    CHECK(count(one, "__global__") == 1);
  }
  CHECK(run(emit + "--stage cu --gradients cap").out == whole);
  CHECK(count(run(emit + "--stage cu --gradients none").out, "__global__") == 4);
  CHECK(run(emit + "--stage cu --deterministic").out != whole);
  CHECK_THAT(whole, Contains("attnc_backward") && Contains("static float d_score("));
  CHECK_THAT(run(emit + "--stage kernel-ir").out,
             Contains("output d_score(score, b, h, q_idx, kv_idx, grad) -> ") && Contains("output scale_in(b, h) -> "));
  CHECK_THAT(run(emit + "--stage kernel-ir --kernel-family naive").out,
             Contains("output d_score") && !Contains("scale_in"));
  CHECK(run(emit + "--stage cu --kernel-family naive").out != whole);
  const Outcome cubin = run(emit + "--stage cubin --launch 2");
  if (cubin.exitCode == 3 && cubin.err.find("nvrtc") != std::string::npos) return;
  CHECK(cubin.exitCode == 0);
  CHECK(cubin.out.substr(1, 3) == "ELF");
  CHECK(count(run(emit + "--stage ptx").out, ".entry") == 6);
  CHECK(count(run(emit + "--stage ptx --launch 3").out, ".entry") == 1);
}

TEST_CASE("check says where no gradient reaches q and k") {
  const std::string note = "no gradient reaches q and k";
  CHECK_THAT(run("check --expr 'torch.floor(score)'").out, Contains("score_mod passes none to score: " + note));
  CHECK_THAT(run("check --expr 'score.detach()'").out, Contains("score_mod passes none to score: " + note));
  Folder folder;
  attnc::test::writeFile(folder / "m.py", "bias: f32[KV_LEN]\ndef score_mod(s, b, h, q, kv):\n  return bias[kv]\n");
  CHECK_THAT(run("check " + folder / "m.py").out, Contains("gradients   score_mod does not depend on score: " + note));
  for (const char* mod : {"--expr 'score * 2'", "--expr 'q_idx >= kv_idx'"})
    CHECK_THAT(run(std::string("check ") + mod).out, !Contains("gradient"));
}
