// What `attnc bench`, `attnc tune` and `attnc run` print on a GPU, by fakes of CUDA and NVML (tests/jobs/fake_cuda).
#include "command.h"
#include "variable.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>

using namespace attnc::test;
using Catch::Contains;

namespace {

/// Returns what a command prints there; `libraries`: the folder of the fakes.
std::string onFake(const std::string& arguments, const std::string& libraries = ATTNC_BINARY_DIR "/tests/fake_cuda") {
  const Outcome outcome = shell("ATTNC_CACHE_MODE=off LD_LIBRARY_PATH=" + libraries + ":$LD_LIBRARY_PATH $ATTNC " +
                                arguments + " --expr score --shape 1,2,2,512,512,64");
  INFO(outcome.err);
  CHECK(outcome.exitCode == 0);
  return outcome.out;
}

} // namespace

NVRTC_TEST_CASE("bench tells energy and clock of launches under load, where NVML is") {
  CHECK_THAT(onFake("bench"), Contains("\n            under load 1.0000 ms, ") && Contains(" J/call, 1200 MHz\n"));
  const auto load = nlohmann::json::parse(onFake("bench --json"))["kernels"][0]["load"];
  CHECK(load["ms"] == 1);
  CHECK(load["mhz"] == 1200);
  CHECK(load["joules"] > 0);

  const Folder alone; // CUDA without NVML
  std::filesystem::copy(ATTNC_BINARY_DIR "/tests/fake_cuda/libcuda.so.1", alone / "libcuda.so.1");
  CHECK_THAT(onFake("bench", alone / ""), Contains("ms, ") && !Contains("under load"));
  CHECK(!nlohmann::json::parse(onFake("bench --json", alone / ""))["kernels"][0].contains("load"));
}

NVRTC_TEST_CASE("tune measures under load, and says so") {
  CHECK_THAT(onFake("tune"), Contains("\nmeasured    under load: ") && Contains("1.0000 ms  the model's  <- taken"));
  const auto json = nlohmann::json::parse(onFake("tune --json"));
  CHECK(json["underLoad"] == true);
  CHECK(json["kernels"][0]["tiles"].size() > 1);
}

NVRTC_TEST_CASE("run --verify asks a mod with a weight_mod for no row maximum") {
  const Outcome outcome = shell("ATTNC_CACHE_MODE=off LD_LIBRARY_PATH=" ATTNC_BINARY_DIR
                                "/tests/fake_cuda:$LD_LIBRARY_PATH $ATTNC run " ATTNC_SOURCE_DIR
                                "/dsl/mods/sigmoid.py --random 1,2,1,40,40,16 --verify");
  INFO(outcome.out << outcome.err);
  CHECK_THAT(outcome.err, Contains("the GPU's result differs from the fp64 reference")); // the fake computes nothing
  CHECK_THAT(outcome.out, Contains("\nverify      out") && !Contains("row max") && !Contains("lse"));
}
