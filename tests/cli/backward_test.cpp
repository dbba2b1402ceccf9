// `attnc run --backward` on the CPU: closed formulas, what is read and written, and what is refused.
#include "command.h"
#include "helpers/library.h"
#include "tensors.h"

#include <cmath>
#include <filesystem>
#include <tuple>

using namespace attnc;
using namespace attnc::cli;
using namespace attnc::test;
using Catch::Contains;

namespace {

const std::string kMods = ATTNC_SOURCE_DIR "/dsl/mods/";
const std::string kBackward = "run --device cpu --backward ";

double zero(int64_t) { return 0; }

/// q is 0, so that all live scores are equal; k[.., kv, d] = kv + d, v[.., kv, d] = kv.
NamedTensors flatStep() {
  NamedTensors tensors;
  tensors["q"] = tensor(DType::F32, {1, 2, 4, 16}, zero);
  tensors["k"] = tensor(DType::F32, {1, 1, 6, 16}, [](int64_t i) { return double(i / 16 + i % 16); });
  tensors["v"] = tensor(DType::F32, {1, 1, 6, 8}, [](int64_t i) { return double(i / 8); });
  tensors["dout"] = tensor(DType::F32, {1, 2, 4, 8}, zero);
  return tensors;
}

NamedTensors step(const NamedTensors& tensors, const std::string& arguments) {
  Folder folder;
  const std::string in = folder / "in.safetensors", out = folder / "out.safetensors";
  REQUIRE(writeSafetensors(in, tensors));
  Outcome outcome = test::attnc(kBackward + arguments + " --in " + in + " --out " + out);
  INFO(outcome.err);
  REQUIRE(outcome.exitCode == 0);
  return readTensors(out);
}

} // namespace

TEST_CASE("gradients of equal scores are those of a mean") {
  NamedTensors tensors = flatStep();
  tensors["dout"] = tensor(DType::F32, {1, 2, 4, 8}, [](int64_t i) { return i % 8 == 0 ? 1.0 : 0.0; });
  NamedTensors result = step(tensors, "--expr 'q_idx >= kv_idx'");
  CHECK(result.size() == 5);
  CHECK(result["dq"].shape == tensors["q"].shape);
  CHECK(result["dk"].shape == tensors["k"].shape);
  CHECK(result["dv"].shape == tensors["v"].shape);
  CHECK(result["out"].shape == tensors["dout"].shape);
  for (int64_t row = 0; row < 8; ++row) CHECK(at(result["lse"], row) == Approx(std::log(double(row % 4 + 1))));
  for (int64_t kv = 0; kv < 6; ++kv) {
    double sum = 0; // of the weights of a column in all rows of both heads
    for (int64_t q = kv; q < 4; ++q) sum += 2 / double(q + 1);
    CHECK(at(result["dv"], kv * 8) == Approx(sum));
    CHECK(at(result["dv"], kv * 8 + 1) == 0);
    CHECK(at(result["dk"], kv * 16) == 0);
  }
  for (int64_t q = 0; q < 4; ++q) { // scale 1/4; the variance of 0 .. q is q (q + 2) / 12
    for (int64_t d : {0, 5}) CHECK(at(result["dq"], q * 16 + d) == Approx(0.25 * double(q * (q + 2)) / 12));
  }
}

TEST_CASE("a gradient of lse is read where there is one") {
  NamedTensors tensors = flatStep();
  NamedTensors without = step(tensors, "--expr score --scale 0.5");
  CHECK(at(without["dq"], 0) == 0);
  tensors["dlse"] = tensor(DType::F32, {1, 2, 4}, [](int64_t i) { return double(i); });
  NamedTensors result = step(tensors, "--expr score --scale 0.5");
  for (int64_t row = 0; row < 8; ++row) // the mean of kv is 2.5
    for (int64_t d : {0, 3}) CHECK(at(result["dq"], row * 16 + d) == Approx(0.5 * double(row) * (2.5 + double(d))));
  CHECK(at(result["dv"], 0) == 0);
  // The derivative of the mod is a factor.
  CHECK(at(step(tensors, "--expr 'score * 3' --scale 0.5")["dq"], 16) == Approx(3 * 0.5 * 2.5));
  CHECK(at(step(tensors, "--expr 'score.detach() * 3' --scale 0.5")["dq"], 16) == 0);
}

TEST_CASE("gradients have the dtype of q") {
  for (DType dtype : {DType::BF16, DType::F16}) {
    NamedTensors tensors = flatStep();
    for (auto& [name, given] : tensors) {
      HostTensor source = given;
      given = tensor(dtype, source.shape, [&](int64_t i) { return at(source, i); });
    }
    NamedTensors result = step(tensors, "--expr score");
    for (const char* name : {"dq", "dk", "dv", "out"}) CHECK(result[name].dtype == dtype);
    CHECK(result["lse"].dtype == DType::F32);
  }
}

TEST_CASE("gradients of every library mod on random operands are finite, and some not 0") {
  for (const auto& entry : std::filesystem::directory_iterator(kMods)) {
    if (entry.path().extension() != ".py") continue;
    Folder folder;
    const std::string out = folder / "out.safetensors";
    Outcome outcome = test::attnc(kBackward + entry.path().string() + " --random 2,4,2,35,65,16 --out " + out);
    INFO(entry.path() << outcome.err);
    REQUIRE(outcome.exitCode == 0);
    NamedTensors result = readTensors(out);
    for (const char* name : {"dq", "dk", "dv"}) {
      double squares = 0;
      for (int64_t i = 0; i < result[name].elements(); ++i) squares += at(result[name], i) * at(result[name], i);
      CHECK(std::isfinite(squares));
      CHECK((squares > 0 || test::mayMaskAll(entry.path().stem().string())));
    }
  }
}

TEST_CASE("gradients of captures are those of what reads them") {
  NamedTensors tensors = flatStep(); // weights are 1/6, and dout is 0: the gradient of a score is dlse / 6
  tensors["dlse"] = tensor(DType::F32, {1, 2, 4}, [](int64_t i) { return double(i); });
  tensors["bias"] = tensor(DType::BF16, {2, 6}, zero);
  tensors["unread"] = tensor(DType::F32, {2}, zero);
  Folder folder;
  const std::string mod = folder / "mod.py";
  test::writeFile(mod, "bias: bf16[H, KV_LEN]\nunread: f32[H]\ngain: float\nshift: int\n"
                       "def score_mod(score, b, h, q_idx, kv_idx):\n"
                       "    return score + gain * bias[h, kv_idx] + gain + shift + 0 * unread[h].detach()\n");
  const std::string arguments = mod + " --set gain=3 --set shift=0 ";
  NamedTensors all = step(tensors, arguments);
  CHECK(all.size() == 7);
  REQUIRE(all.count("d_bias"));
  CHECK(all["d_bias"].dtype == DType::BF16);
  CHECK(all["d_bias"].shape == std::vector<int64_t>{2, 6});
  for (int64_t kv = 0; kv < 6; ++kv) {
    CHECK(at(all["d_bias"], kv) == 3 * (0 + 1 + 2 + 3) / 6.0);
    CHECK(at(all["d_bias"], 6 + kv) == 3 * (4 + 5 + 6 + 7) / 6.0);
  }
  REQUIRE(all.count("d_gain"));
  CHECK(all["d_gain"].dtype == DType::F32);
  CHECK(all["d_gain"].shape.empty());
  CHECK(at(all["d_gain"], 0) == Approx(28));
  const auto extra = [&](const std::string& asked) {
    std::string names;
    for (const auto& [name, gradient] : step(tensors, arguments + "--gradients " + asked))
      if (name.rfind("d_", 0) == 0) names += name + " ";
    return names;
  };
  CHECK(extra("bias") == "d_bias ");
  CHECK(extra("bias,unread") == "d_bias d_unread ");
  CHECK(extra("unread --gradients gain --deterministic") == "d_gain d_unread ");
  CHECK(extra("none") == "");
}

TEST_CASE("gradients of sums of the mod are read where there are some") {
  Folder folder;
  const std::string mod = folder / "mod.py";
  test::writeFile(mod, "far: f32[KV_LEN]\n"
                       "def position(prob, score, b, h, q_idx, kv_idx):\n    return prob * kv_idx\n"
                       "def distance(prob, score, b, h, q_idx, kv_idx):\n    return prob * far[kv_idx]\n"
                       "def logit(prob, score, b, h, q_idx, kv_idx):\n    return score\n"
                       "mean: f32[B, H, Q_LEN] = reduce_sum(position)\n"
                       "spread: f32[B, H] = reduce_sum(distance)\n"
                       "top: f32[B, H] = reduce_max(logit)\n");
  NamedTensors tensors = flatStep(); // weights are 1/6
  tensors["far"] = tensor(DType::F32, {6}, [](int64_t i) { return double(i); });
  CHECK(at(step(tensors, mod)["dq"], 0) == 0);
  tensors["mean_gradient"] = tensor(DType::F32, {1, 2, 4}, [](int64_t i) { return double(i); });
  NamedTensors one = step(tensors, mod + " --scale 0.5");
  for (int64_t row = 0; row < 8; ++row) // the variance of kv is 35/12
    for (int64_t d : {0, 3}) CHECK(at(one["dq"], row * 16 + d) == Approx(0.5 * double(row) * 35 / 12));
  REQUIRE(one.count("d_far"));
  CHECK(at(one["d_far"], 2) == 0);
  tensors["spread_gradient"] = tensor(DType::F32, {1, 2}, [](int64_t i) { return double(i); });
  NamedTensors both = step(tensors, mod + " --scale 0.5");
  CHECK(at(both["dq"], 16) == Approx(0.5 * 35 / 12));
  CHECK(at(both["dq"], 5 * 16) == Approx(0.5 * (5 + 1) * 35 / 12)); // of the second head
  CHECK(at(both["d_far"], 2) == Approx(4 / 6.0));                   // four rows with weights of 1/6
  CHECK(at(both["dv"], 0) == 0);
  CHECK(at(step(tensors, mod + " --gradients none")["dq"], 16) == 0);
  const std::string in = folder / "both.safetensors";
  REQUIRE(writeSafetensors(in, tensors));
  test::checkRefused(kBackward + mod + " --gradients mean,far --in " + in + " --out " + folder / "out", 2,
                     "has spread_gradient, whose sum is not named");
  tensors.erase("spread_gradient");
  CHECK(at(step(tensors, mod + " --gradients mean --scale 0.5")["dq"], 5 * 16) == Approx(0.5 * 5 * 35 / 12));
  CHECK(step(tensors, mod + " --gradients mean").count("d_far") == 0);
  for (const auto& [name, shape, options, message] :
       {std::tuple("mean_gradient", std::vector<int64_t>{1, 2, 5}, "",
                   "mean_gradient is f32 [1, 2, 5], expected f32 [1, 2, 4]"),
        {"mean_gradients", {1, 2, 4}, "", "nothing takes tensor 'mean_gradients'"},
        {"unread", {1}, " --gradients mean", "no tensor 'mean_gradient'"}}) {
    NamedTensors wrong = flatStep();
    wrong["far"] = tensors["far"];
    wrong[name] = tensor(DType::F32, shape, zero);
    const std::string in = folder / "wrong.safetensors";
    REQUIRE(writeSafetensors(in, wrong));
    test::checkRefused(kBackward + mod + options + " --in " + in + " --out " + folder / "out", 3, message);
  }
}

TEST_CASE("random gradients of sums are drawn behind all else, and saved") {
  Folder folder;
  const std::string saved = folder / "saved.safetensors", out = folder / "out.safetensors",
                    again = folder / "again.safetensors";
  const std::string entropy = kBackward + kMods + "entropy.py ";
  const Outcome outcome = test::attnc(entropy + "--random 2,4,2,35,65,16 --save-operands " + saved + " --out " + out);
  INFO(outcome.err);
  REQUIRE(outcome.exitCode == 0);
  CHECK(readTensors(saved)["entropy_gradient"].shape == std::vector<int64_t>{2, 4, 35});
  CHECK(test::attnc(entropy + "--in " + saved + " --out " + again).exitCode == 0);
  CHECK(readTensors(again)["dq"].bytes == readTensors(out)["dq"].bytes);
  CHECK(test::attnc(entropy + "--gradients none --in " + saved + " --out " + again).exitCode == 0);
  CHECK(readTensors(again)["dq"].bytes != readTensors(out)["dq"].bytes);
  const std::string unread = test::attnc(entropy + "--random 2,4,2,35,65,16 --gradients none").out;
  CHECK_THAT(test::attnc("run --device cpu " + kMods + "causal.py --backward --random 2,4,2,35,65,16").out,
             Contains(unread.substr(unread.find("\ndk"))));
}

TEST_CASE("wrong names of gradients are told, and gradients without a backward pass") {
  const std::string random = kMods + "alibi.py --random 1,2,1,9,9,8 ";
  for (auto [arguments, message] :
       {std::pair(kBackward + random + "--gradients slope",
                  "--gradients: a gradient of slope is asked for, which is no float that"),
        {kBackward + kMods + "sliding_window.py --random 1,2,1,9,9,8 --gradients window", "it captures none"},
        {"run --device cpu " + random + "--gradients slopes", "--gradients: is of the backward pass"},
        {"run --device cpu " + random + "--deterministic", "--deterministic: is of the backward pass"},
        {"emit --stage cu " + kMods + "alibi.py --gradients slopes", "--gradients: is of the backward pass"},
        {"explain " + kMods + "alibi.py --deterministic", "--deterministic: is of the backward pass"}}) {
    attnc::test::checkRefused(arguments, 2, message);
  }
}

TEST_CASE("random operands are the same with and without --backward") {
  const std::string operands = kMods + "alibi.py --random 1,2,1,9,9,8";
  const std::string forward = test::attnc("run --device cpu " + operands).out;
  const std::string both = test::attnc(kBackward + operands).out;
  const std::string digest = forward.substr(forward.find("\nout"));
  CHECK_THAT(both, Contains(digest));
  for (const char* part : {"\ndq          [1, 2, 9, 8] bf16: mean ", "\ndk          [1, 1, 9, 8] bf16: mean ", "\ndv  ",
                           "\nd_slopes    [2] f32: mean "}) {
    CHECK_THAT(both, Contains(part));
    CHECK_THAT(forward, !Contains(part));
  }
}

TEST_CASE("what flows back must be there and fit") {
  const auto refused = [](const NamedTensors& tensors, const std::string& message) {
    Folder folder;
    const std::string in = folder / "in.safetensors";
    REQUIRE(writeSafetensors(in, tensors));
    Outcome outcome = test::attnc(kBackward + "--expr score --in " + in + " --out " + folder / "out");
    CHECK(outcome.exitCode == 3);
    CHECK_THAT(outcome.err, Contains(message));
    CHECK(folder.files() == 1);
  };
  NamedTensors tensors = flatStep();
  tensors.erase("dout");
  refused(tensors, "no tensor 'dout'");
  tensors["dout"] = tensor(DType::F32, {1, 2, 4, 16}, zero);
  refused(tensors, "dout is f32 [1, 2, 4, 16], expected f32 [1, 2, 4, 8]");
  tensors["dout"] = tensor(DType::BF16, {1, 2, 4, 8}, zero);
  refused(tensors, "dout is bf16 [1, 2, 4, 8], expected f32 [1, 2, 4, 8]");
  tensors = flatStep();
  tensors["dlse"] = tensor(DType::BF16, {1, 2, 4}, zero);
  refused(tensors, "dlse is bf16 [1, 2, 4], expected f32 [1, 2, 4]");
  tensors["dlse"] = tensor(DType::F32, {1, 2, 4, 1}, zero);
  refused(tensors, "dlse is f32 [1, 2, 4, 1], expected f32 [1, 2, 4]");
}
