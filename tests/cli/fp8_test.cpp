// Operands of e4m3 that the command draws, and the dtype of out that the user chooses for them.
#include "command.h"
#include "tensors.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <tuple>

using namespace attnc;
using namespace attnc::cli;
using namespace attnc::test;
using Catch::Contains;

namespace {

const std::string kCausal = "--expr 'q_idx >= kv_idx' ";

/// Returns the lines of a run that tell its results.
std::string digestOf(const std::string& text) { return text.substr(text.find("\nout ")); }

} // namespace

TEST_CASE("run draws caches of e4m3, with scales of heads, rows or pages") {
  const Folder folder;
  const std::string file = folder / "operands.safetensors";
  const std::string draws = "run --device cpu " + kCausal + "--kernel decode --fp8-kv --random 3,4,2,2,64,16 ";
  using Shape = std::vector<int64_t>;
  for (const auto& [options, ofK, ofScales] : std::initializer_list<std::tuple<std::string, Shape, Shape>>{
           {"", {3, 2, 64, 16}, {3, 2}},
           {"--kv-lengths", {3, 2, 64, 16}, {3, 2}},
           {"--row-scales", {3, 2, 64, 16}, {3, 2, 64}},
           {"--scales rows --dtype fp16", {3, 2, 64, 16}, {3, 2, 64}},
           {"--page-size 16", {12, 2, 16, 16}, {3, 2}},
           {"--page-size 16 --row-scales", {12, 2, 16, 16}, {12, 2, 16, 1}},
           {"--page-size 16 --scales pages", {12, 2, 16, 16}, {12, 2, 1, 1}},
           {"--page-size 16 --scales pages --ragged", {12, 2, 16, 16}, {12, 2, 1, 1}}}) {
    INFO(options);
    const std::string text = printed(draws + options + " --save-operands " + file);
    CHECK_THAT(text, Contains(", k and v e4m3\n"));
    NamedTensors tensors = test::readTensors(file);
    CHECK(tensors["q"].dtype == (options.find("fp16") == std::string::npos ? DType::BF16 : DType::F16));
    CHECK(tensors.count("q_scales") == 0);
    for (const char* name : {"k", "v"}) {
      CHECK(tensors[name].dtype == DType::E4M3);
      CHECK(tensors[name].shape == ofK);
      CHECK(tensors[name + std::string("_scales")].shape == ofScales);
    }
    // Scales of pages meet their pages by the way that files take.
    CHECK(digestOf(printed("run --device cpu " + kCausal + "--kernel decode --in " + file)) == digestOf(text));
    if (ofK.front() != 3) continue;
    for (const char* name : {"k", "v"}) { // the numbers that elements times scales are
      HostTensor& elements = tensors[name];
      const HostTensor scales = tensors[name + std::string("_scales")];
      const int64_t each = elements.elements() / scales.elements();
      elements = test::tensor(DType::F32, elements.shape,
                              [&, of = elements](int64_t i) { return at(of, i) * at(scales, i / each); });
      tensors.erase(name + std::string("_scales"));
    }
    tensors["q"] =
        test::tensor(DType::F32, tensors["q"].shape, [&, of = tensors["q"]](int64_t i) { return at(of, i); });
    const std::string plain = folder / "plain.safetensors";
    REQUIRE(writeSafetensors(plain, tensors));
    std::vector<HostTensor> outs;
    for (const std::string& in : {file, plain}) {
      printed("run --device cpu " + kCausal + "--in " + in + " -o " + folder / "out.safetensors");
      outs.push_back(test::readTensors(folder / "out.safetensors")["out"]);
    }
    for (int64_t i = 0; i < outs[0].elements(); ++i)
      REQUIRE(at(outs[0], i) == Approx(at(outs[1], i)).epsilon(0x1p-8).margin(1e-6));
  }
}

TEST_CASE("run draws q, k and v of e4m3 with scales of blocks") {
  const Folder folder;
  const std::string file = folder / "operands.safetensors";
  const std::string draws = "run --device cpu " + kCausal + "--dtype e4m3 --random 2,2,1,130,300,16 --scales blocks ";
  for (const char* options : {"", "--ragged"}) {
    printed(draws + options + " --save-operands " + file);
    NamedTensors tensors = test::readTensors(file);
    CHECK(tensors["q_scales"].shape == std::vector<int64_t>{2, 2, 2});
    CHECK(tensors["k_scales"].shape == std::vector<int64_t>{2, 1, 3});
  }
}

TEST_CASE("out of e4m3 is bf16, or fp16 if the user asks for it") {
  const Folder folder;
  const std::string file = folder / "operands.safetensors", pack = folder / "kernels.attnc";
  const std::string draws = "run --device cpu " + kCausal + "--dtype e4m3 --random 1,2,2,8,8,16 ";
  const std::string again = "run --device cpu " + kCausal + "--in " + file;
  CHECK_THAT(printed(draws + "--save-operands " + file), Contains("out         [1, 2, 8, 16] bf16"));
  CHECK_THAT(printed(draws + "--out-dtype fp16"), Contains("out         [1, 2, 8, 16] f16"));
  CHECK_THAT(printed(again), Contains("[1, 2, 8, 16] bf16"));
  CHECK_THAT(printed(again + " --out-dtype fp16"), Contains("[1, 2, 8, 16] f16"));
  CHECK_THAT(printed(draws + "--out-dtype fp16 --save-operands " + file),
             Contains("--in " + file + " --out-dtype fp16"));
  for (auto [option, dtype] : {std::pair("", "bf16"), {" --out-dtype float16", "f16"}, {" --out-dtype bf16", "bf16"}}) {
    INFO(option);
    const std::string target = kCausal + "--dtype e4m3 --arch sm_90a --head-dim 64 " + option;
    const Outcome explained = test::attnc("explain --shape 1024 " + target + " --json");
    if (explained.exitCode == 3) return; // no NVRTC
    CHECK(nlohmann::json::parse(explained.out)["kernel"]["dtype"] == dtype);
    CHECK(nlohmann::json::parse(printed("emit --stage cu --json " + target))["kernel"]["dtype"] == dtype);
    printed("pack --kernel forward " + target + " -o " + pack);
    const auto listed = nlohmann::json::parse(printed("cache ls --json " + pack));
    for (const auto& row : listed["kernels"]) CHECK(row["dtype"] == dtype);
  }
}

TEST_CASE("options of e4m3 that do not fit are refused") {
  const Folder folder;
  const std::string file = folder / "plain.safetensors", run = "run --device cpu " + kCausal;
  printed(run + "--random 1,1,1,8,8,16 --save-operands " + file);
  for (const auto& [arguments, message] : std::initializer_list<std::pair<std::string, std::string>>{
           {run + "--random 8 --scales blocks", "--scales: q, k and v are bf16, and only e4m3 has scales"},
           {run + "--random 8 --dtype e4m3 --scales pages", "--scales: k and v have no pages"},
           {run + "--random 8 --dtype e4m3 --scales rows --row-scales", "--row-scales excludes --scales"},
           {run + "--random 8 --dtype e4m3 --scales cells", "'cells'"},
           {run + "--random 8 --fp8-kv --kernel decode --scales blocks",
            "--scales: k and v of a cache have no scales of blocks"},
           {run + "--random 8 --fp8-kv --kernel forward", "k and v are e4m3, and q is bf16: only decode"},
           {run + "--random 8 --fp8-kv --dtype fp32", "decode kernels take no f32"},
           {run + "--random 8 --fp8-kv --head-dim 40", "head dim 40 of e4m3"},
           {run + "--random 8 --fp8-kv --backward", "k and v are e4m3, of which there is no backward pass"},
           {run + "--random 8 --out-dtype fp16", "--out-dtype: q is bf16, and so is out"},
           {run + "--in " + file + " --out-dtype fp16", "--out-dtype: q is bf16, and so is out"},
           {run + "--in " + file + " --fp8-kv", "--fp8-kv requires --random"},
           {run + "--random 8 --dtype e4m3 --out-dtype fp32", "'fp32'"},
           {"bench --in " + file + " --fp8-kv " + kCausal, "--fp8-kv excludes --in"},
           {"bench --shape 8 --scales blocks " + kCausal, "--scales: q, k and v are bf16"},
           {"bench --shape 8 --out-dtype fp16 " + kCausal, "--out-dtype: q is bf16, and so is out"},
           {"explain --shape 8 --out-dtype fp16 " + kCausal, "--out-dtype: q is bf16, and so is out"},
           {"emit --stage cu --dtype fp16 --out-dtype bf16 " + kCausal, "--out-dtype: q is f16, and so is out"},
           {"pack -o /dev/null --dtype bf16 --out-dtype fp16 " + kCausal, "--out-dtype: q is bf16"}}) {
    INFO(arguments);
    attnc::test::checkRefused(arguments, 2, message);
  }
}
