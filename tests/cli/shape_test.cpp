// A problem is spelled the same way in every command.
#include "command.h"
#include "variable.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace attnc::test;
using Catch::Contains;
using Json = nlohmann::json;

namespace {

const std::string kCausal = "--expr 'q_idx >= kv_idx' ";

Json parsed(const std::string& arguments) { return Json::parse(printed(arguments)); }

std::vector<int64_t> problemOf(const Json& json) {
  const Json& p = json["problem"];
  return {p["B"], p["H"], p["HKV"], p["Q_LEN"], p["KV_LEN"]};
}

} // namespace

TEST_CASE("a shape has five or six numbers, or lengths, with commas or x between them") {
  using Numbers = std::vector<int64_t>;
  const std::string mask = "mask --json " + kCausal + "--shape ";
  CHECK(problemOf(parsed(mask + "2,4,2,256,512")) == Numbers{2, 4, 2, 256, 512});
  CHECK(problemOf(parsed(mask + "2x4x2x256x512")) == Numbers{2, 4, 2, 256, 512});
  CHECK(problemOf(parsed(mask + "2,4,2,256,512,64")) == Numbers{2, 4, 2, 256, 512});
  CHECK(problemOf(parsed(mask + "256x512")) == Numbers{1, 1, 1, 256, 512});
  CHECK(problemOf(parsed(mask + "256")) == Numbers{1, 1, 1, 256, 256});
  const std::string probe = "probe --json --at 0,0,3,2 " + kCausal + "--shape ";
  CHECK(problemOf(parsed(probe + "1x2x2x8x8x16")) == Numbers{1, 2, 2, 8, 8});
  const std::string run = "run --json --device cpu " + kCausal;
  for (const char* option : {"--random ", "--shape "}) {
    CHECK(parsed(run + option + "1,2,1,8,16,24")["operands"]["k"]["shape"] == Json{1, 1, 16, 24});
    CHECK(parsed(run + option + "1,2,1,8,16")["operands"]["k"]["shape"] == Json{1, 1, 16, 128});
    CHECK(parsed(run + option + "1,2,1,8,16 --head-dim 24")["operands"]["k"]["shape"] == Json{1, 1, 16, 24});
    CHECK(parsed(run + option + "1,2,1,8,16,24 --head-dim 24")["operands"]["k"]["shape"] == Json{1, 1, 16, 24});
    CHECK(parsed(run + option + "4x8")["operands"]["q"]["shape"] == Json{1, 16, 4, 128});
  }
  for (const std::string& command :
       {"explain " + kCausal, "run --device cpu " + kCausal, "bench " + kCausal, "tune " + kCausal}) {
    INFO(command);
    attnc::test::checkRefused(command + "--shape 1,2,1,8,16,24 --head-dim 32", 2,
                              "--head-dim: it is 32, and --shape says 24");
    const Outcome three = attnc::test::attnc(command + "--shape 1,2,3");
    CHECK(three.exitCode == 2);
    CHECK_THAT(three.err, Contains("B,H,HKV,Q_LEN,KV_LEN,D") && Contains("\nhint: e.g. --"));
  }
  const Outcome packed = attnc::test::attnc("pack " + kCausal + "--shape 1,2,1,8,16,24 -o /dev/null");
  CHECK(packed.exitCode == 2);
  CHECK_THAT(packed.err, Contains("its head dim is none of --head-dim") && Contains("hint: --head-dim 24"));
  if (noNvrtc()) return;
  const std::string explain = "explain --json --arch sm_80 --kernel-family naive " + kCausal + "--shape ";
  const Json explained = parsed(explain + "512x512");
  CHECK(problemOf(explained) == Numbers{1, 16, 16, 512, 512});
  CHECK(parsed(explain + "1,2,2,512,512,64")["kernel"]["headDim"] == 64);
}

TEST_CASE("run writes to -o, and --out is the same") {
  const Folder folder;
  for (const char* option : {"-o ", "--output ", "--out "}) {
    const std::string file = folder / "out.safetensors";
    CHECK_THAT(printed("run --device cpu --random 1,1,1,8,8,8 " + kCausal + option + file), Contains("wrote"));
    CHECK(readFile(file).size() > 128);
  }
}
