// What the command says of gradients.
#include "cli/command.h"

#include <catch2/catch.hpp>

#include <filesystem>

using attnc::test::Folder;
using attnc::test::Outcome;
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
