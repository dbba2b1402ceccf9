// KV lengths and positions of queries on the command line: run on the CPU, emit, and what is refused.
#include "command.h"
#include "tensors.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

using namespace attnc;
using namespace attnc::cli;
using namespace attnc::test;
using Catch::Contains;

namespace {

const std::string kCausal = "--expr 'q_idx >= kv_idx' ";

/// Three sequences of 2 queries and up to 6 keys with equal scores: out is the mean of the live kv, and NaN lies
/// behind.
NamedTensors operands() {
  static constexpr int64_t kLengths[] = {6, 0, 3};
  NamedTensors tensors;
  const auto zero = [](int64_t) { return 0.0; };
  const auto behind = [](int64_t i, double value) {
    return i / 8 % 6 < kLengths[i / 48] ? value : std::numeric_limits<double>::quiet_NaN();
  };
  tensors["q"] = tensor(DType::F32, {3, 1, 2, 8}, zero);
  tensors["k"] = tensor(DType::F32, {3, 1, 6, 8}, [&](int64_t i) { return behind(i, 0); });
  tensors["v"] = tensor(DType::F32, {3, 1, 6, 8}, [&](int64_t i) { return behind(i, double(i / 8 % 6)); });
  tensors["kv_lengths"] = tensor(DType::I32, {3}, [](int64_t b) { return double(kLengths[b]); });
  return tensors;
}

Outcome run(const NamedTensors& tensors, const std::string& arguments, std::vector<double>* out = nullptr) {
  Folder folder;
  REQUIRE(writeSafetensors(folder / "in.safetensors", tensors));
  Outcome outcome = test::attnc("run --device cpu --in " + folder / "in.safetensors" + " --out " +
                                folder / "out.safetensors" + " --lse " + arguments);
  INFO(outcome.err);
  if (!out) return outcome;
  REQUIRE(outcome.exitCode == 0);
  NamedTensors result = test::readTensors(folder / "out.safetensors");
  for (int64_t row = 0; row < 6; ++row) out->push_back(at(result["out"], row * 8));
  CHECK(at(result["lse"], 2) == -INFINITY);
  return outcome;
}

std::vector<double> rowsOf(const NamedTensors& tensors, const std::string& arguments) {
  std::vector<double> rows;
  run(tensors, arguments, &rows);
  return rows;
}

} // namespace

TEST_CASE("run takes kv_lengths and q_offsets from the file") {
  NamedTensors tensors = operands();
  // The last query stands at the last key: it sees all, the one before it all but one.
  CHECK(rowsOf(tensors, kCausal) == std::vector<double>{2, 2.5, 0, 0, 0.5, 1});
  CHECK(rowsOf(tensors, kCausal + "--kv-lengths --q-offset lengths") == rowsOf(tensors, kCausal));
  CHECK(rowsOf(tensors, kCausal + "--q-offset none") == std::vector<double>{0, 0.5, 0, 0, 0, 0.5});
  tensors["q_offsets"] = tensor(DType::I32, {3}, [](int64_t b) { return double(3 * b) - 1; });
  CHECK(rowsOf(tensors, kCausal) == std::vector<double>{0, 0, 0, 0, 1, 1});
  tensors.erase("kv_lengths");
  tensors["k"] = tensor(DType::F32, {3, 1, 6, 8}, [](int64_t) { return 0.0; });
  tensors["v"] = tensor(DType::F32, {3, 1, 6, 8}, [](int64_t i) { return double(i / 8 % 6); });
  Folder folder;
  REQUIRE(writeSafetensors(folder / "in.safetensors", tensors));
  REQUIRE(test::attnc("run --device cpu " + kCausal + "--in " + folder / "in.safetensors" + " --out " +
                      folder / "out.safetensors")
              .exitCode == 0);
  NamedTensors result = test::readTensors(folder / "out.safetensors");
  CHECK(at(result["out"], 4 * 8) == Approx(2.5)); // the third sequence's first query, at position 5
}

TEST_CASE("run takes k and v of fp8, with their scales") {
  NamedTensors tensors;
  tensors["q"] = tensor(DType::BF16, {1, 2, 1, 16}, [](int64_t) { return 0.0; });
  tensors["k"] = tensor(DType::E4M3, {1, 2, 4, 16}, [](int64_t) { return 1.0; });
  tensors["v"] = tensor(DType::E4M3, {1, 2, 4, 16}, [](int64_t i) { return double(i / 16 % 4); });
  tensors["v_scales"] = tensor(DType::F32, {2}, [](int64_t h) { return h ? 4.0 : 0.5; });
  Folder folder;
  const std::string in = folder / "in.safetensors", out = folder / "out.safetensors";
  REQUIRE(writeSafetensors(in, tensors));
  const Outcome outcome = test::attnc("run --device cpu --expr score --in " + in + " --out " + out);
  INFO(outcome.err);
  REQUIRE(outcome.exitCode == 0);
  NamedTensors result = test::readTensors(out);
  CHECK(at(result["out"], 0) == 0.75);
  CHECK(at(result["out"], 16) == 6);
  CHECK_THAT(test::attnc("run --device cpu --kernel forward --expr score --in " + in + " --out " + out).err,
             Contains("only decode kernels take these\nhint: forward kernels take k and v of e4m3 if q is e4m3"));

  // Scales of rows, and of rows and pages of a pool.
  const auto meanOf = [&](std::vector<int64_t> shape, const std::vector<double>& scales) {
    tensors["v_scales"] = tensor(DType::F32, std::move(shape), [&](int64_t i) { return scales[size_t(i)]; });
    REQUIRE(writeSafetensors(in, tensors));
    const Outcome of = test::attnc("run --device cpu --expr score --in " + in + " --out " + out);
    INFO(of.err);
    REQUIRE(of.exitCode == 0);
    return at(test::readTensors(out)["out"], 0);
  };
  CHECK(meanOf({1, 2, 4}, {1, 2, 3, 4, 1, 1, 1, 1}) == 5); // (0 + 2 + 6 + 12) / 4
  tensors["page_table"] = tensor(DType::I32, {1, 4}, [](int64_t i) { return double(3 - i); });
  tensors["kv_lengths"] = tensor(DType::I32, {1}, [](int64_t) { return 4.0; });
  tensors["k"] = tensor(DType::E4M3, {4, 2, 1, 16}, [](int64_t) { return 1.0; });
  tensors["v"] = tensor(DType::E4M3, {4, 2, 1, 16}, [](int64_t i) { return double(3 - i / 32); });
  CHECK(meanOf({4, 2, 1}, {4, 1, 3, 1, 2, 1, 1, 1}) == 5); // pages lie in reverse
  tensors["page_table"] = tensor(DType::I32, {1, 1}, [](int64_t) { return 1.0; });
  tensors["k"] = tensor(DType::E4M3, {2, 2, 8, 16}, [](int64_t) { return 1.0; });
  tensors["v"] = tensor(DType::E4M3, {2, 2, 8, 16}, [](int64_t i) { return double(i / 16 % 8); });
  std::vector<double> ofRows(32, 9);
  for (size_t i = 0; i < 4; ++i) ofRows[16 + i] = double(i + 1);
  CHECK(meanOf({2, 2, 8}, ofRows) == 5);
}

TEST_CASE("run takes q, k and v of fp8, with scales of heads or of blocks of rows") {
  NamedTensors tensors;
  tensors["q"] = tensor(DType::E4M3, {1, 2, 1, 16}, [](int64_t) { return 1.0; });
  tensors["k"] = tensor(DType::E4M3, {1, 1, 256, 16}, [](int64_t) { return 1.0; });
  tensors["v"] = tensor(DType::E4M3, {1, 1, 256, 16}, [](int64_t) { return 2.0; });
  tensors["q_scales"] = tensor(DType::F32, {2}, [](int64_t h) { return h ? 0.0625 : 0.03125; });
  tensors["k_scales"] = tensor(DType::F32, {1, 1, 2}, [](int64_t block) { return block ? 2.0 : 1.0; });
  tensors["v_scales"] = tensor(DType::F32, {1, 1, 2}, [](int64_t block) { return block ? 0.5 : 3.0; });
  Folder folder;
  const std::string in = folder / "in.safetensors", out = folder / "out.safetensors";
  const auto run = [&](const std::string& more) {
    REQUIRE(writeSafetensors(in, tensors));
    return test::attnc("run --device cpu --expr score --scale 1 --in " + in + " --out " + out + more);
  };
  const Outcome outcome = run("");
  INFO(outcome.err);
  REQUIRE(outcome.exitCode == 0);
  NamedTensors result = test::readTensors(out);
  CHECK(result["out"].dtype == DType::BF16);
  for (int64_t h : {0, 1}) { // products are 16 q_scale k_scale, by block
    const double first = std::exp(h ? 1.0 : 0.5), second = std::exp(h ? 2.0 : 1.0);
    CHECK(at(result["out"], 16 * h) == Approx((6 * first + second) / (first + second)).epsilon(0x1p-8));
  }
  tensors["k_scales"] = tensor(DType::F32, {1, 1, 3}, [](int64_t) { return 1.0; });
  CHECK_THAT(run("").err, Contains("k_scales is f32 [1, 1, 3], expected f32 [1] or [1, 1] or [1, 1, 2]"));
  tensors.erase("k_scales");
  CHECK_THAT(run(" --kernel decode").err, Contains("decode kernels take no q of e4m3"));
  CHECK_THAT(run(" --backward").err, Contains("k is e4m3, of which there is no backward pass"));
  CHECK_THAT(run(" --row-scales").err, Contains("--row-scales requires --random"));
  CHECK_THAT(
      test::attnc("run --device cpu --expr score --dtype e4m3 --random 1,2,1,8,256,16 --backward --out " + out).err,
      Contains("no backward pass"));
  CHECK(run(" --kernel-family sm80").exitCode == 0);
}

TEST_CASE("gradients end at kv_lengths") {
  NamedTensors tensors = operands();
  tensors["dout"] = tensor(DType::F32, {3, 1, 2, 8}, [](int64_t) { return 1.0; });
  const auto dV = [&](const std::string& arguments) {
    Folder folder;
    REQUIRE(writeSafetensors(folder / "in.safetensors", tensors));
    const Outcome outcome = test::attnc("run --device cpu --backward --in " + folder / "in.safetensors" + " --out " +
                                        folder / "out.safetensors " + kCausal + arguments);
    INFO(outcome.err);
    REQUIRE(outcome.exitCode == 0);
    std::vector<double> rows;
    for (int64_t row = 0; row < 18; ++row)
      rows.push_back(at(test::readTensors(folder / "out.safetensors")["dv"], row * 8));
    return rows;
  };
  CHECK(dV("--q-offset none") == std::vector<double>{1.5, 0.5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1.5, 0.5, 0, 0, 0, 0});
  CHECK(std::vector<double>(dV("")).at(14) == Approx(1. / 3)); // only the last query sees it
  CHECK_THAT(test::attnc("run --device cpu --random 1,1,1,8,8,8 --backward --page-size 8 " + kCausal).err,
             Contains("--kv-lengths and --ragged train sequences of different lengths"));
}

TEST_CASE("a capture of that name is the mod's, and no lengths") {
  Folder folder;
  test::writeFile(folder / "m.py",
                  "kv_lengths: i32[B]\ndef mask_mod(b, h, q_idx, kv_idx):\n    return kv_idx < kv_lengths[b]\n");
  // Queries stand at their rows, so nothing but the mask is heard.
  CHECK(rowsOf(operands(), folder / "m.py") == std::vector<double>{2.5, 2.5, 0, 0, 1, 1});
}

TEST_CASE("lengths that do not fit, or are not there, are refused by name") {
  const auto refused = [](NamedTensors tensors, const std::string& arguments, const std::string& message) {
    const Outcome outcome = run(tensors, kCausal + arguments);
    INFO(arguments << " -> " << message);
    CHECK(outcome.exitCode == 3);
    CHECK_THAT(outcome.err, Contains(message));
  };
  NamedTensors tensors = operands();
  tensors["kv_lengths"] = tensor(DType::I64, {3}, [](int64_t) { return 1.0; });
  refused(tensors, "", "kv_lengths is i64 [3], expected i32 [3]");
  tensors["kv_lengths"] = tensor(DType::I32, {2}, [](int64_t) { return 1.0; });
  refused(tensors, "", "kv_lengths is i32 [2], expected i32 [3]");
  tensors.erase("kv_lengths");
  refused(tensors, "--kv-lengths", "no tensor 'kv_lengths'");
  refused(tensors, "--q-offset tensor", "the kernel was compiled for q_offsets, which is not given");
}

TEST_CASE("a tensor that nothing takes is refused if its name is nearly that of an operand") {
  for (auto [name, meant] :
       {std::pair("q_offset", "q_offsets"), {"k_scale", "k_scales"}, {"page_tables", "page_table"}}) {
    NamedTensors tensors = operands();
    tensors[name] = tensor(DType::I32, {3}, [](int64_t) { return 0.0; });
    const Outcome outcome = run(tensors, kCausal);
    CHECK(outcome.exitCode == 3);
    CHECK_THAT(outcome.err, Contains(std::string("nothing takes tensor '") + name + "'") &&
                                Contains(std::string(" ") + meant + ","));
    // A mod may capture it, and other tensors may be there.
    CHECK(run(tensors, "--expr \"score + " + std::string(name) + "[b]\" --no-warn unused-capture")
              .err.find("nothing takes") == std::string::npos);
  }
  NamedTensors tensors = operands();
  tensors["model.layers.0.weight"] = tensors["labels"] = tensor(DType::I32, {3}, [](int64_t) { return 0.0; });
  CHECK(run(tensors, kCausal).exitCode == 0);
}

TEST_CASE("emit and explain show what lengths and offsets make of a mod") {
  const std::string ir = test::attnc("emit --stage ir --kv-lengths " + kCausal).out;
  CHECK_THAT(ir, Contains("output kv_length(b)") && Contains("output q_offset(b)") &&
                     Contains("tensor attnc_kv_lengths: i32[B]"));
  CHECK_THAT(test::attnc("emit --stage ir --kv-lengths --q-offset none " + kCausal).out, !Contains("q_offset"));
  CHECK_THAT(test::attnc("emit --stage ir --kv-lengths --pin KV_LEN=4096 " + kCausal).out,
             Contains("4096") && !Contains("#KV_LEN"));
  CHECK_THAT(test::attnc("emit --stage cu --q-offset tensor " + kCausal).out, Contains("kHasOffsets = true"));
  for (const char* wrong : {"emit --stage cu --kernel backward --page-size 16 ", "emit --stage ir --q-offset here ",
                            "run --random 1,1,1,4,4,8 --backward --page-size 4 "}) {
    INFO(wrong);
    CHECK(test::attnc(wrong + kCausal).exitCode == 2);
  }
}

TEST_CASE("explain counts the blocks of queries at the last keys") {
  const auto explain = [](const std::string& options) {
    Outcome outcome = test::attnc("explain --arch sm_80 --head-dim 64 --shape 1,1,1,128,4096 " + kCausal + options);
    if (outcome.exitCode != 0) WARN("SKIPPED: " << outcome.err);
    return outcome.out;
  };
  const std::string plain = explain(""), lengths = explain("--kv-lengths"), tensor = explain("--q-offset tensor");
  if (plain.empty()) return;
  CHECK_THAT(plain, Contains("live               1 ") && !Contains("sequences "));
  CHECK_THAT(lengths, Contains("live              32 ") && Contains("full              31 ") &&
                          Contains("sequences   KV lengths, counted below as full; the last query at the last key\n"));
  CHECK_THAT(tensor,
             Contains("live               1 ") && Contains("sequences   positions of queries, counted below from 0\n"));
}

TEST_CASE("random operands have lengths and offsets where these are asked for") {
  const std::string shape = "run --device cpu --random 8,1,1,4,64,8 " + kCausal;
  const std::string plain = test::attnc(shape).out, lengths = test::attnc(shape + "--kv-lengths").out,
                    both = test::attnc(shape + "--kv-lengths --q-offset tensor").out;
  for (const std::string& text : {plain, lengths, both}) CHECK_THAT(text, Contains("lse "));
  CHECK(plain.substr(plain.find("lse ")) != lengths.substr(lengths.find("lse ")));
  CHECK(lengths.substr(lengths.find("lse ")) != both.substr(both.find("lse ")));
}
