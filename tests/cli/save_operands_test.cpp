// `attnc run --save-operands`: what --in computes from the file is what was computed, bit by bit.
#include "command.h"
#include "tensors.h"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace attnc;
using namespace attnc::test;
using Catch::Contains;

namespace {

const std::string kMods = ATTNC_SOURCE_DIR "/dsl/mods/";

/// Returns the options that the command names for the same run.
std::string again(const std::string& printed) {
  const std::string start = "the same run: ";
  const size_t at = printed.find(start);
  REQUIRE(at != std::string::npos);
  return printed.substr(at + start.size(), printed.find('\n', at) - at - start.size()) + " ";
}

} // namespace

TEST_CASE("operands that were drawn and saved give the same bits") {
  const std::string scalars = "n: int\ncap: float\nflag: bool\ncount: i32\n"
                              "def score_mod(score, b, h, q_idx, kv_idx):\n"
                              "  return torch.where(flag, score * cap, score) + (kv_idx + n) % (count + 3)\n";
  Folder folder;
  writeFile(folder / "scalars.py", scalars);
  const std::string causal = "--expr 'q_idx >= kv_idx' ";
  for (const std::string& options : std::vector<std::string>{
           kMods + "alibi.py --random 2,4,2,20,24,16 --lse",
           kMods + "document.py --random 1,2,2,40,40,8 --dtype fp16 --seed 7",
           folder / "scalars.py" + " --random 1,2,1,9,17,8 --set n=5 --row-max",
           kMods + "alibi.py --random 1,4,4,20,20,16 --backward",
           kMods + "alibi.py --random 2,4,2,1,100,16 --kernel decode --kv-lengths",
           kMods + "alibi.py --random 2,4,2,3,64,16 --kernel decode --page-size 16 --q-offset lengths",
           causal + "--random 3,2,2,8,30,8 --q-offset tensor", causal + "--random 3,2,1,12,20,8 --ragged",
           causal + "--random 2,2,2,12,12,8 --ragged --backward",
           kMods + "learned_bias.py --random 1,2,2,64,64,16 --large -1e9,tiles"}) {
    INFO(options);
    const std::string saved = folder / "saved.safetensors", one = folder / "one.safetensors",
                      two = folder / "two.safetensors";
    const std::string first =
        printed("run --device cpu " + options + " --save-operands " + saved + " --out " + one + " ");
    // The mod, and what is asked of the results.
    std::string rest = options.substr(0, options.find("--random"));
    for (const char* wanted : {"--lse", "--row-max"})
      if (options.find(wanted) != std::string::npos) rest += std::string(wanted) + " ";
    printed("run --device cpu " + rest + again(first) + "--out " + two);
    CHECK(readFile(one) == readFile(two));
  }
}

TEST_CASE("saved operands hold everything that was drawn") {
  Folder folder;
  const std::string saved = folder / "saved.safetensors";
  printed("run --device cpu " + kMods + "alibi.py --random 1,4,4,20,20,16 --backward --save-operands " + saved);
  const cli::NamedTensors tensors = readTensors(saved);
  for (const char* name : {"q", "k", "v", "dout", "dlse", "slopes"}) CHECK(tensors.count(name) == 1);
  CHECK(tensors.size() == 6);
}

TEST_CASE("a capture with the name of another operand is not saved in its place") {
  Folder folder;
  writeFile(folder / "m.py", "dout: f32[H]\ndef score_mod(score, b, h, q_idx, kv_idx): return score + dout[h]\n");
  const Outcome outcome = test::attnc("run --device cpu " + folder / "m.py" + " --random 1,2,2,8,8,8 --backward " +
                                      "--save-operands " + folder / "saved.safetensors");
  CHECK(outcome.exitCode == 3);
  CHECK_THAT(outcome.err, Contains("the mod captures 'dout'") && Contains("hint: rename the capture"));
  CHECK(folder.files() == 1);
}
