// `attnc quantise`: a file of q, k and v becomes one of e4m3 and scales, which `run` takes.
#include "command.h"
#include "tensors.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <string>

using namespace attnc;
using namespace attnc::test;
using Catch::Contains;

namespace {

void writeOperands(const std::string& path) {
  cli::NamedTensors tensors;
  int64_t seed = 1;
  for (const char* name : {"q", "k", "v"}) {
    const double step = 0.7 + 0.1 * double(seed++);
    const int64_t heads = *name == 'q' ? 4 : 2;
    tensors[name] = tensor(DType::BF16, {2, heads, 150, 32}, [&](int64_t i) { return std::sin(step * double(i)); });
  }
  tensors["slopes"] = tensor(DType::F32, {4}, [](int64_t i) { return 0.1 * double(i + 1); });
  REQUIRE(cli::writeSafetensors(path, tensors));
}

/// Returns what the command says as it fails.
std::string complaint(const std::string& arguments, int exitCode) {
  const Outcome outcome = test::attnc(arguments);
  CHECK(outcome.exitCode == exitCode);
  CHECK(outcome.out.empty());
  return outcome.err;
}

} // namespace

TEST_CASE("a file is rounded, and attention over it is near") {
  Folder folder;
  const std::string in = folder / "in.safetensors", fp8 = folder / "fp8.safetensors";
  writeOperands(in);
  const std::string mod = std::string("run " ATTNC_SOURCE_DIR "/dsl/mods/alibi.py --device cpu --in ");
  printed(mod + in + " -o " + (folder / "exact.safetensors"));
  const cli::HostTensor exact = readTensors(folder / "exact.safetensors").at("out");
  for (const std::string options :
       {"", "--by-block", "--by-row", "--rotate 3", "--by-block --rotate 4", "--by-row --rotate 4"}) {
    INFO(options);
    const std::string said = printed("quantise --in " + in + " " + options + " -o " + fp8);
    const bool byBlock = options.find("block") != std::string::npos, byRow = options.find("row") != std::string::npos;
    CHECK_THAT(said, Contains(byBlock ? "q           bf16 [2, 4, 150, 32], scales [2, 4, 2]"
                              : byRow ? "q           bf16 [2, 4, 150, 32], scales [2, 4, 150]"
                                      : "q           bf16 [2, 4, 150, 32], scales [2, 4]"));
    CHECK_THAT(said, Contains("error 2.") && Contains("wrote       " + fp8));
    CHECK((said.find("rotated") == std::string::npos) == (options.find("rotate") == std::string::npos));
    const cli::NamedTensors rounded = readTensors(fp8);
    CHECK(rounded.at("k").dtype == DType::E4M3);
    CHECK(rounded.at("k_scales").shape.size() == (byBlock || byRow ? 3 : 2));
    CHECK(rounded.at("slopes").shape == std::vector<int64_t>{4});
    printed(mod + fp8 + " -o " + (folder / "out.safetensors"));
    const cli::HostTensor out = readTensors(folder / "out.safetensors").at("out");
    double squares = 0, error = 0;
    for (int64_t i = 0; i < exact.elements(); ++i) {
      squares += at(exact, i) * at(exact, i);
      error += std::pow(at(out, i) - at(exact, i), 2);
    }
    CHECK(std::sqrt(error / squares) < 0.08);
  }
}

TEST_CASE("q and k of a file get a rotary embedding") {
  Folder folder;
  const std::string in = folder / "in.safetensors", fp8 = folder / "fp8.safetensors";
  writeOperands(in);
  const std::string command = "quantise --in " + in + " --by-row --rotary -o " + fp8;
  CHECK_THAT(complaint(command, 3), Contains("there is no tensor 'cos_sin'"));
  cli::NamedTensors tensors = readTensors(in);
  tensors["cos_sin"] = tensor(DType::F32, {2, 16}, [](int64_t i) { return i < 8 || i >= 24; }); // 0 and a right angle
  tensors["k_positions"] = tensor(DType::I32, {2, 150}, [](int64_t i) { return i % 2; });
  REQUIRE(cli::writeSafetensors(in, tensors));
  CHECK_THAT(printed(command), Contains("q           bf16 [2, 4, 150, 32], scales [2, 4, 150], rotary embedding\n") &&
                                   Contains("v           bf16 [2, 2, 150, 32], scales [2, 2, 150], error 2."));
  const auto isTurned = [&](const char* name, int64_t row, int64_t pair, int64_t distance) {
    const cli::NamedTensors rounded = readTensors(fp8);
    const auto value = [&](int64_t column) {
      const int64_t i = row * 32 + column;
      return at(rounded.at(name), i) * at(rounded.at(std::string(name) + "_scales"), row);
    };
    const double first = at(tensors.at(name), row * 32 + pair),
                 second = at(tensors.at(name), row * 32 + pair + distance);
    return std::fabs(value(pair) + second) < 0.07 && std::fabs(value(pair + distance) - first) < 0.07;
  };
  CHECK(isTurned("q", 1, 3, 8));
  CHECK(isTurned("q", 2, 3, 8)); // clamped to position 1
  CHECK(isTurned("k", 3, 3, 8));
  CHECK_FALSE(isTurned("k", 2, 3, 8));
  CHECK_FALSE(isTurned("v", 1, 3, 8));
  printed(command + " --interleaved --rotate 2");
  printed(command + " --interleaved");
  CHECK(isTurned("q", 1, 4, 1));
  printed("run --expr score --device cpu --in " + fp8 + " -o " + (folder / "out.safetensors"));
  CHECK_THAT(complaint("quantise --in " + in + " --interleaved -o " + fp8, 2), Contains("--rotary"));
}

TEST_CASE("what is rounded may go through pipes") {
  Folder folder;
  const std::string in = folder / "in.safetensors", piped = folder / "piped.safetensors",
                    fp8 = folder / "fp8.safetensors";
  writeOperands(in);
  printed("quantise --in " + in + " -o " + fp8);
  const Outcome outcome = shell("$ATTNC quantise --in - -o - < " + in + " > " + piped);
  CHECK(outcome.exitCode == 0);
  CHECK_THAT(outcome.err, Contains("wrote       <stdout>"));
  CHECK(readFile(piped) == readFile(fp8));
}

TEST_CASE("files that are not rounded") {
  Folder folder;
  const std::string in = folder / "in.safetensors", out = " -o " + (folder / "out.safetensors");
  writeOperands(in);
  cli::NamedTensors tensors = readTensors(in);
  tensors.erase("v");
  REQUIRE(cli::writeSafetensors(folder / "no_v.safetensors", tensors));
  tensors["v"] = tensor(DType::I32, {1, 2, 3, 8}, [](int64_t) { return 0; });
  REQUIRE(cli::writeSafetensors(folder / "ints.safetensors", tensors));
  tensors["v"] = tensor(DType::F32, {1, 2, 3}, [](int64_t) { return 0; });
  REQUIRE(cli::writeSafetensors(folder / "flat.safetensors", tensors));
  CHECK_THAT(complaint("quantise --in " + (folder / "no_v.safetensors") + out, 3), Contains("there is no tensor 'v'"));
  CHECK_THAT(complaint("quantise --in " + (folder / "ints.safetensors") + out, 3), Contains("'v'") && Contains("i32"));
  CHECK_THAT(complaint("quantise --in " + (folder / "flat.safetensors") + out, 3), Contains("[B, H, L, D]"));
  CHECK_THAT(complaint("quantise --in " + in + " -o " + in, 2), Contains("in.safetensors"));
  CHECK_THAT(complaint("quantise --in " + in + " --rotate x" + out, 2), Contains("--rotate"));
  CHECK_THAT(complaint("quantise --in " + in + " --by-row --by-block" + out, 2), Contains("--by-block"));
}
