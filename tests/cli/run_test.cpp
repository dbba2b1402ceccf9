// `attnc run` on the CPU: numbers, operands from files, and what happens to the output file.
#include "command.h"
#include "helpers/library.h"
#include "tensors.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <regex>

using namespace attnc;
using namespace attnc::cli;
using namespace attnc::test;
using Catch::Contains;

namespace {

const std::string kMods = ATTNC_SOURCE_DIR "/dsl/mods/";

/// q and k are 0, so that all live scores are equal; v[.., kv, d] = kv + 100 d.
NamedTensors flatOperands(DType dtype = DType::F32) {
  auto zero = [](int64_t) { return 0.0; };
  NamedTensors tensors;
  tensors["q"] = tensor(dtype, {1, 2, 4, 8}, zero);
  tensors["k"] = tensor(dtype, {1, 1, 6, 8}, zero);
  tensors["v"] = tensor(dtype, {1, 1, 6, 16}, [](int64_t i) { return double(i / 16) + 100 * double(i % 16); });
  return tensors;
}

std::string write(const Folder& folder, const NamedTensors& tensors) {
  std::string path = folder / "in.safetensors";
  REQUIRE(writeSafetensors(path, tensors));
  return path;
}

/// Runs on the CPU with an output that is there already; expects exit code 3, the message, and the output untouched.
void expectRefused(const NamedTensors& tensors, const std::string& arguments, const std::string& message) {
  INFO(arguments << " -> " << message);
  Folder folder;
  std::string in = write(folder, tensors), out = folder / "out.safetensors";
  writeFile(out, "as it was");
  attnc::test::checkRefused("run --device cpu --in " + in + " --out " + out + " " + arguments, 3, message);
  CHECK(readFile(out) == "as it was");
  CHECK(folder.files() == 2);
}

} // namespace

TEST_CASE("equal scores average the live values") {
  Folder folder;
  std::string in = write(folder, flatOperands()), out = folder / "out.safetensors";
  Outcome outcome =
      test::attnc("run --device cpu --expr 'q_idx >= kv_idx + 1' --lse --row-max --in " + in + " --out " + out);
  INFO(outcome.err);
  REQUIRE(outcome.exitCode == 0);
  CHECK(outcome.err.empty());
  for (const char* part : {"[1, 2, 4, 8]", "f32", "CPU", "wrote"}) CHECK_THAT(outcome.out, Contains(part));

  NamedTensors result = test::readTensors(out);
  REQUIRE(result.size() == 3);
  CHECK(result["out"].shape == std::vector<int64_t>{1, 2, 4, 16});
  CHECK(result["out"].dtype == DType::F32);
  CHECK(result["lse"].shape == std::vector<int64_t>{1, 2, 4});
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t q = 0; q < 4; ++q) {
      double mean = q == 0 ? 0 : (double(q) - 1) / 2;
      CHECK(at(result["out"], (h * 4 + q) * 16) == Approx(mean));
      CHECK(at(result["out"], (h * 4 + q) * 16 + 1) == Approx(q == 0 ? 0 : mean + 100));
      CHECK(at(result["lse"], h * 4 + q) == Approx(q == 0 ? -INFINITY : std::log(double(q))));
      CHECK(at(result["row_max"], h * 4 + q) == (q == 0 ? -INFINITY : 0));
    }
}

TEST_CASE("the output has the dtype of q, and only what was asked for") {
  for (DType dtype : {DType::BF16, DType::F16}) {
    Folder folder;
    std::string in = write(folder, flatOperands(dtype)), out = folder / "out.safetensors";
    REQUIRE(test::attnc("run --device cpu --expr 'q_idx >= kv_idx' --in " + in + " --out " + out).exitCode == 0);
    NamedTensors result = test::readTensors(out);
    REQUIRE(result.size() == 1);
    CHECK(result["out"].dtype == dtype);
    CHECK(at(result["out"], 16 * 3) == 1.5);
  }
}

TEST_CASE("captures come from the file or from --set, scalars too") {
  Folder folder;
  writeFile(folder / "m.py", "shift: i32[B]\nwindow: int\nfactor: float\nflip: bool\nlast: i64\n"
                             "def score_mod(score, b, h, q, kv): return score + where(flip, 0.0, factor * kv)\n"
                             "def mask_mod(b, h, q, kv): return (kv >= q - window + shift[b]) & (kv <= last)\n");
  NamedTensors tensors = flatOperands();
  tensors["shift"] = tensor(DType::I32, {1}, [](int64_t) { return 1.0; });
  tensors["unused"] = tensor(DType::U8, {3}, [](int64_t) { return 1.0; });
  auto run = [&](const std::string& sets) {
    std::string in = write(folder, tensors), out = folder / "out.safetensors";
    Outcome outcome = test::attnc("run --device cpu " + folder / "m.py --in " + in + " --out " + out + sets);
    INFO(outcome.err);
    REQUIRE(outcome.exitCode == 0);
    return at(test::readTensors(out)["out"], 3 * 16); // q 3: mean of kv from 3 - window + 1 to last
  };
  CHECK(run(" --set window=2 --set factor=0.5 --set flip=true --set last=4") == Approx(3));
  CHECK(run(" --set window=3 --set factor=0 --set flip=false --set last=5") == Approx(3));
  tensors["window"] = tensor(DType::I64, {}, [](int64_t) { return 2.0; });
  tensors["factor"] = tensor(DType::F16, {1}, [](int64_t) { return 0.25; });
  tensors["flip"] = tensor(DType::Bool, {}, [](int64_t) { return 1.0; });
  tensors["last"] = tensor(DType::I64, {}, [](int64_t) { return 3.0; });
  CHECK(run("") == Approx(2.5));
  CHECK(run(" --set last=5") == Approx(3.5));
}

TEST_CASE("the scale is 1 / sqrt(D) unless given") {
  Folder folder;
  NamedTensors tensors;
  tensors["q"] = tensor(DType::F32, {1, 1, 1, 16}, [](int64_t) { return 1.0; });
  tensors["k"] = tensor(DType::F32, {1, 1, 1, 16}, [](int64_t) { return 2.0; });
  tensors["v"] = tensor(DType::F32, {1, 1, 1, 16}, [](int64_t) { return 1.0; });
  std::string in = write(folder, tensors), out = folder / "out.safetensors";
  REQUIRE(test::attnc("run --device cpu --expr score --lse --in " + in + " --out " + out).exitCode == 0);
  CHECK(at(test::readTensors(out)["lse"], 0) == Approx(8));
  REQUIRE(test::attnc("run --device cpu --expr score --scale 0.125 --lse --in " + in + " --out " + out).exitCode == 0);
  CHECK(at(test::readTensors(out)["lse"], 0) == Approx(4));
}

TEST_CASE("every library mod runs on random operands and gives finite numbers") {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kMods)) {
    if (entry.path().extension() != ".py") continue;
    ++count;
    for (const char* problem : {"2,4,2,65,65,16", "1,2,1,7,130,8"}) {
      INFO(entry.path() << " " << problem);
      Folder folder;
      std::string out = folder / "out.safetensors";
      Outcome outcome =
          test::attnc("run --device cpu " + entry.path().string() + " --random " + problem + " --out " + out);
      INFO(outcome.err);
      REQUIRE(outcome.exitCode == 0);
      NamedTensors result = test::readTensors(out);
      int64_t live = 0;
      for (int64_t i = 0; i < result["out"].elements(); ++i) {
        REQUIRE(std::isfinite(at(result["out"], i)));
        live += at(result["out"], i) != 0;
      }
      CHECK((live > 0 || test::mayMaskAll(entry.path().stem().string())));
    }
  }
  CHECK(count >= 12);
}

TEST_CASE("a seed names its operands") {
  Folder folder;
  auto run = [&](const std::string& options) {
    std::string out = folder / "out.safetensors";
    REQUIRE(
        test::attnc("run --device cpu " + kMods + "alibi.py --random 1,2,1,9,9,8 --out " + out + options).exitCode ==
        0);
    return readFile(out);
  };
  CHECK(run(" --seed 1") == run(" --seed 1"));
  CHECK(run(" --seed 1") != run(" --seed 2"));
  CHECK(run("") == run(" --seed 0 --dtype bf16"));
  CHECK(run(" --dtype fp32").size() > run("").size());
}

TEST_CASE("random scores may be large, by a capture and by rows of k", "[cli]") {
  Folder folder;
  const std::string out = folder / "out.safetensors";
  for (const std::string& mod : {kMods + "learned_bias.py", kMods + "noop.py", kMods + "relative_bias.py"})
    for (const char* dtype : {"bf16", "fp32"})
      for (const char* options :
           {"", " --page-size 8", " --ragged", " --ragged --page-size 8", " --backward", " --q-offset tensor"}) {
        INFO(mod << " " << dtype << options);
        const Outcome outcome = test::attnc("run --device cpu " + mod +
                                            " --random 1,2,1,30,40,40 --lse --row-max --large -1e9,all --dtype " +
                                            dtype + options + " --out " + out);
        INFO(outcome.err);
        REQUIRE(outcome.exitCode == 0);
        NamedTensors result = test::readTensors(out);
        const HostTensor &lse = result["lse"], &rowMax = result["row_max"];
        int64_t large = 0;
        for (int64_t i = 0; i < lse.elements(); ++i) {
          if (at(lse, i) == -INFINITY) continue; // a sequence without keys
          large += at(lse, i) < -8e8 && at(rowMax, i) < -8e8 && at(lse, i) > -1.3e9;
          CHECK((at(lse, i) < -8e8 && at(lse, i) > -1.3e9));
        }
        CHECK(large > 0);
      }
}

TEST_CASE("without --scale, scores of large ones are multiples of a power of two", "[cli]") {
  Folder folder;
  const std::string run = "run --device cpu --expr score --random 1,1,1,4,1,40 --row-max --large 1e9,half --out ",
                    out = folder / "out.safetensors";
  const auto rowMax = [&](const std::string& options) {
    REQUIRE(test::attnc(run + out + options).exitCode == 0);
    return at(test::readTensors(out)["row_max"], 0);
  };
  CHECK(rowMax("") == 0x1p30); // 2^33 / 8: 1 / sqrt(40) is about 2^-2.7
  CHECK(rowMax(" --scale 0.25") == 0x1p30);
  CHECK(rowMax(" --scale 0.375") == 0x1p31 * 0.375);
}

TEST_CASE("free extents of random captures can be set") {
  Folder folder;
  writeFile(folder / "m.py", "table: f32[N, 3]\ndef score_mod(score, b, h, q, kv): return score + table[q, 1] * N\n");
  const std::string run = "run --device cpu " + folder / "m.py --random 1,1,1,4,4,8 ";
  CHECK(test::attnc(run).exitCode == 0);
  CHECK(test::attnc(run + "--set N=5").exitCode == 0);
  CHECK(test::attnc(run + "--set N=-5").exitCode == 2);
  CHECK(test::attnc(run + "--set M=5").exitCode == 2);
}

TEST_CASE("empty problems run") {
  for (const char* problem : {"0,2,1,4,4,8", "1,2,1,0,4,8", "1,2,1,4,0,8"}) {
    Folder folder;
    std::string out = folder / "out.safetensors";
    Outcome outcome = test::attnc("run --device cpu --expr 'q_idx >= kv_idx' --lse --random " + std::string(problem) +
                                  " --out " + out);
    INFO(problem << outcome.err);
    REQUIRE(outcome.exitCode == 0);
    NamedTensors result = test::readTensors(out);
    for (int64_t i = 0; i < result["lse"].elements(); ++i) CHECK(at(result["lse"], i) == -INFINITY);
    for (int64_t i = 0; i < result["out"].elements(); ++i) CHECK(at(result["out"], i) == 0);
  }
}

TEST_CASE("operands that do not fit are refused by name, and the output stays as it was") {
  const std::string causal = "--expr 'q_idx >= kv_idx'";
  auto zero = [](int64_t) { return 0.0; };
  for (const char* name : {"q", "k", "v"}) {
    NamedTensors tensors = flatOperands();
    tensors.erase(name);
    expectRefused(tensors, causal, "no tensor '" + std::string(name) + "'");
    tensors[name] = tensor(DType::F32, {6, 8}, zero);
    expectRefused(tensors, causal, std::string(name) + " has 2 axes");
    tensors[name] = tensor(DType::I32, {1, 1, 6, 8}, zero);
    expectRefused(tensors, causal, std::string(name) + " is i32");
  }
  auto spoil = [&](const char* name, HostTensor replacement, const std::string& message) {
    NamedTensors tensors = flatOperands();
    tensors[name] = std::move(replacement);
    expectRefused(tensors, causal, message);
  };
  spoil("k", tensor(DType::BF16, {1, 1, 6, 8}, zero), "k is bf16, q is f32");
  spoil("v", tensor(DType::F16, {1, 1, 6, 16}, zero), "v is f16, q is f32");
  spoil("k", tensor(DType::F32, {1, 1, 6, 16}, zero), "head dims differ: q is [1, 2, 4, 8], k is [1, 1, 6, 16]");
  spoil("k", tensor(DType::F32, {1, 1, 5, 8}, zero), "lengths differ");
  spoil("k", tensor(DType::F32, {1, 2, 6, 8}, zero), "heads differ");
  spoil("q", tensor(DType::F32, {1, 2, 4, 4}, zero), "head dims differ");
  NamedTensors tensors = flatOperands();
  tensors["k"] = tensor(DType::F32, {2, 1, 6, 8}, zero);
  expectRefused(tensors, causal, "batches differ: k is [2, 1, 6, 8], v is [1, 1, 6, 16]");
  tensors["v"] = tensor(DType::F32, {2, 1, 6, 16}, zero);
  expectRefused(tensors, causal, "batches differ: q is [1, 2, 4, 8], k is [2, 1, 6, 8]");
}

TEST_CASE("captures that are missing or do not fit are refused by name") {
  const std::string alibi = kMods + "alibi.py";
  auto zero = [](int64_t) { return 0.0; };
  NamedTensors tensors = flatOperands();
  expectRefused(tensors, alibi, "'slopes: f32[H]' is missing");
  tensors["slopes"] = tensor(DType::F32, {3}, zero);
  expectRefused(tensors, alibi, "'slopes'");
  tensors["slopes"] = tensor(DType::BF16, {2}, zero);
  expectRefused(tensors, alibi, "'slopes' has dtype bf16");
  tensors["slopes"] = tensor(DType::F32, {2, 1}, zero);
  expectRefused(tensors, alibi, "'slopes'");
  const std::string window = kMods + "sliding_window.py";
  expectRefused(tensors, window, "'window: int' is missing");
  tensors["window"] = tensor(DType::F32, {}, zero);
  expectRefused(tensors, window, "capture 'window' is declared as an int, but a float is given");
  tensors["window"] = tensor(DType::I32, {2}, zero);
  expectRefused(tensors, window, "of shape [2]");
}

TEST_CASE("what the mod asserts of the launch is checked, in its words") {
  Folder mods;
  const std::string path = mods / "mod.py";
  writeFile(path, "t: f32[N]\nassert t.shape[0] == KV_LEN, 't has an entry for each key'\n"
                  "def score_mod(score, b, h, q_idx, kv_idx):\n    return score + t[kv_idx]\n");
  NamedTensors tensors = flatOperands();
  auto zero = [](int64_t) { return 0.0; };
  tensors["t"] = tensor(DType::F32, {5}, zero);
  expectRefused(tensors, path, "mod.py:2: t has an entry for each key (");
  tensors["t"] = tensor(DType::F32, {6}, zero);
  Folder folder;
  CHECK(test::attnc("run --device cpu " + path + " --in " + write(folder, tensors)).exitCode == 0);
  const Outcome check = test::attnc("check " + path);
  CHECK_THAT(check.out,
             Contains("conditions  t has an entry for each key (line 2)\n") && Contains("t (line 4): proven inside"));
  // Captures that are drawn have extents that the mod agrees with.
  writeFile(path, "t: f32[N]\nassert t.shape[0] == 2 * B + 1, 'odd'\n"
                  "def score_mod(score, b, h, q_idx, kv_idx):\n    return score + t[2 * b]\n");
  CHECK(test::attnc("run --device cpu --random 2,1,1,4,4,16 " + path).exitCode == 0);
  const Outcome misfit = test::attnc("run --device cpu --random 2,1,1,4,4,16 --set N=4 " + path);
  CHECK(misfit.exitCode == 3);
  CHECK_THAT(misfit.err, Contains("odd (N = 4, B = 2)"));
}

TEST_CASE("a truncated file is refused by the tensor that is cut") {
  Folder folder;
  std::string in = write(folder, flatOperands()), out = folder / "out.safetensors";
  std::string whole = readFile(in);
  for (size_t cut : {size_t(0), size_t(7), size_t(40), whole.size() / 2, whole.size() - 1}) {
    writeFile(in, whole.substr(0, cut));
    Outcome outcome = test::attnc("run --device cpu --expr 'q_idx >= kv_idx' --in " + in + " --out " + out);
    CHECK(outcome.exitCode == 3);
    CHECK_THAT(outcome.err, Contains("in.safetensors"));
    CHECK(folder.files() == 1);
  }
  CHECK_THAT(test::attnc("run --device cpu --expr 'q_idx >= kv_idx' --in " + in).err,
             Contains("tensor 'v': truncated"));
}

TEST_CASE("an output that cannot be written is exit code 3") {
  Folder folder;
  std::string in = write(folder, flatOperands());
  for (const std::string& out : {std::string("/no/such/folder/o"), std::string("/dev/full"), folder / "."})
    test::checkRefused("run --device cpu --expr score --in " + in + " --out " + out, 3, out);
}

TEST_CASE("without a GPU auto says that it uses the CPU, and cuda and --verify fail at once") {
  Folder folder;
  const std::string run = "run --expr 'q_idx >= kv_idx' --random 1,1,1,8,8,8 ", out = folder / "out.safetensors";
  Outcome cuda = test::attnc(run + "--device cuda");
  if (cuda.exitCode == 0) {
    WARN("SKIPPED: this machine has a GPU");
    return;
  }
  CHECK(cuda.exitCode == 3);
  CHECK(cuda.out.empty());
  const std::string saved = folder / "saved.safetensors";
  for (const std::string& form : {run, run + "--out -", run + "--out " + out, run + "--backward",
                                  run + "--save-operands " + saved, "run --expr 'q_idx >= kv_idx' --in " + saved}) {
    INFO(form);
    Outcome automatic = test::attnc(form);
    CHECK(automatic.exitCode == 0);
    const std::regex line("^attnc: note: there is no GPU, so the fp64 reference computes on the CPU: [^\n]+\n");
    CHECK(std::regex_search(automatic.err, line));
    CHECK(std::count(automatic.err.begin(), automatic.err.end(), '\n') == (form.ends_with("--out -") ? 4 : 1));
    CHECK(test::attnc(form + " --device cpu").err.find("note:") == std::string::npos); // it was asked for
  }
  std::filesystem::remove(out);
  std::filesystem::remove(saved);
  // Before anything is read, computed or written: the operands are not even there.
  Outcome verify = test::attnc("run --expr 'q_idx >= kv_idx' --in /no/such/file --verify --out " + out);
  CHECK(verify.exitCode == 3);
  CHECK(verify.out.empty());
  CHECK_THAT(verify.err, Contains("attnc: error: --verify compares a GPU with the CPU") && !Contains("/no/such/file"));
  CHECK(folder.files() == 0);
}

TEST_CASE("the CPU refuses what a kernel would refuse") {
  Folder folder;
  auto zero = [](int64_t) { return 0.0; };
  NamedTensors tensors = flatOperands();
  auto refused = [&](int exitCode, const std::string& arguments, const std::string& message) {
    Outcome outcome = test::attnc("run --device cpu " + arguments);
    INFO(arguments << "\n" << outcome.err);
    CHECK(outcome.exitCode == exitCode);
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err, Contains("attnc: error: ") && Contains(message));
  };
  const std::string causal = "--expr 'q_idx >= kv_idx' ", random = causal + "--random 1,1,1,8,8,8 ";
  refused(2, random + "--dtype fp32 --kernel-family sm90", "sm90");
  refused(2, random + "--tf32", "tf32");
  refused(2, random + "--kernel backward", "'backward' is none of auto, forward, decode");
  refused(2, random + "--kernel decode --backward", "decode kernels have no backward pass");
  refused(2, random + "--kernel decode --dtype fp32", "decode kernels take no f32");
  CHECK(test::attnc("run --device cpu " + random + "--kernel decode --q-offset lengths").exitCode == 0);
  refused(2, random + "--pin KV_LEN=16", "KV_LEN is 8, but the kernel was compiled with it pinned to 16");
  refused(2, random + "--pin LENGTH=8", "no number 'LENGTH'");
  refused(2, kMods + "sliding_window.py --random 1,1,1,8,8,8 --pin window=4 --set window=5", "window");
  const std::string in = write(folder, tensors);
  refused(3, causal + "--kernel-family sm90 --in " + in, "sm90");
  refused(3, causal + "--pin Q_LEN=5 --in " + in, "Q_LEN is 4");
  for (auto [dim, message] : {std::pair(int64_t(12), "head dim 12 is not supported"),
                              {264, "head dims above 256 are not supported in f32"},
                              {584, "head dim 584 is not supported"}}) {
    tensors["q"] = tensor(DType::F32, {1, 2, 4, dim}, zero);
    tensors["k"] = tensor(DType::F32, {1, 1, 6, dim}, zero);
    refused(3, causal + "--in " + write(folder, tensors), message);
  }
  tensors = flatOperands();
  tensors["v"] = tensor(DType::F32, {1, 1, 6, 2}, zero);
  refused(3, causal + "--in " + write(folder, tensors), "head dim 2 is not supported");
  CHECK(test::attnc("run --device cpu " + random + "--kernel-family sm90 --pin KV_LEN=8").exitCode == 0);
}

TEST_CASE("what is pinned need not be set") {
  const std::string run = "run --device cpu " + kMods + "sliding_window.py --random 1,1,1,64,64,8 ";
  const Outcome pinned = test::attnc(run + "--pin window=3"), set = test::attnc(run + "--set window=3");
  CHECK(pinned.exitCode == 0);
  auto digest = [](const Outcome& outcome) { return outcome.out.substr(outcome.out.find("\nout")); };
  CHECK(digest(pinned) == digest(set));
}

TEST_CASE("without a file for it, the result is told in a digest") {
  Folder folder;
  std::string in = write(folder, flatOperands());
  Outcome outcome = test::attnc("run --device cpu --expr 'q_idx >= kv_idx + 1' --in " + in);
  CHECK(outcome.exitCode == 0);
  CHECK_THAT(outcome.out, Contains("\nlse         [1, 2, 4] f32: 0 to 1.099, 2 rows masked whole (-inf)\n"));
  // Rows of mean 0, 0, 0.5 and 1, of which the first is masked: its out is 0; 100 d is added to the others.
  CHECK_THAT(outcome.out, Contains("\nout         [1, 2, 4, 16] f32: mean 562.9, rms 762.8, largest magnitude 1501\n"));
  CHECK_THAT(test::attnc("run --device cpu --expr score --random 1,1,1,0,4,8").out, Contains("no finite element"));
  NamedTensors tensors = flatOperands();
  tensors["v"] = tensor(DType::F32, {1, 1, 6, 16}, [](int64_t i) { return i == 0 ? NAN : i == 1 ? INFINITY : 1.0; });
  CHECK_THAT(test::attnc("run --device cpu --expr score --in " + write(folder, tensors)).out,
             Contains("mean 1, rms 1, largest magnitude 1, 8 NaN, 8 infinite\n"));
  CHECK(test::attnc("run --device cpu --expr score --in " + in + " --out " + folder / "o").out.find("\nlse") ==
        std::string::npos);
}

TEST_CASE("a mod with a weight_mod has no lse") {
  Folder folder;
  const std::string run = "run " + kMods + "sigmoid.py --random 1,2,1,40,40,16 ", out = folder / "o";
  const Outcome told = test::attnc(run + "--device cpu --backward");
  CHECK_THAT(told.out, Contains("\nout ") && Contains("\ndq ") && !Contains("\nlse"));
  REQUIRE(test::attnc(run + "--device cpu --backward --out " + out).exitCode == 0);
  CHECK(test::readTensors(out).count("lse") == 0);
  CHECK_THAT(test::attnc(run + "--device cpu --lse").err,
             Contains("sigmoid.py has a weight_mod in place of the softmax, so there is no lse") &&
                 Contains("leave --lse out"));
  CHECK_THAT(test::attnc(run + "--device cpu --row-max").err,
             Contains("so there is no row maximum") && Contains("leave --row-max out"));
}

TEST_CASE("operands come from stdin and results go to stdout where - is said") {
  Folder folder;
  NamedTensors tensors = flatOperands();
  tensors["unused"] = tensor(DType::U8, {3}, [](int64_t) { return 1.0; });
  std::string in = write(folder, tensors), out = folder / "out.safetensors", piped = folder / "piped.safetensors";
  const std::string run = "run --device cpu --expr 'q_idx >= kv_idx' --lse ";
  REQUIRE(test::attnc(run + "--in " + in + " --out " + out).exitCode == 0);
  Outcome outcome = test::shell("cat " + in + " | $ATTNC " + run + "--in - --out - > " + piped);
  CHECK(outcome.exitCode == 0);
  CHECK_THAT(outcome.err, Contains("operands ") && Contains("wrote       <stdout>"));
  CHECK(readFile(piped) == readFile(out));
  Outcome explained = test::shell("cat " + in + " | $ATTNC explain --arch sm_80 --expr 'q_idx >= kv_idx' --in -");
  if (explained.err.find("nvrtc") == std::string::npos) CHECK_THAT(explained.out, Contains("H 2, HKV 1, Q_LEN 4"));
  CHECK(test::shell("head -c 100 " + in + " | $ATTNC " + run + "--in - --out " + out).exitCode == 3);
}

TEST_CASE("an output onto the operands is refused, by whatever path") {
  Folder folder;
  const std::string in = write(folder, flatOperands()), before = readFile(in);
  std::filesystem::create_symlink("in.safetensors", folder / "soft");
  std::filesystem::create_hard_link(in, folder / "hard");
  const std::string run = "$ATTNC run --device cpu --expr score ";
  for (const std::string& out :
       {in, folder / "../" + folder.name() + "/in.safetensors", folder / "soft", folder / "hard"}) {
    INFO(out);
    Outcome outcome = test::shell(run + "--in " + in + " --out " + out);
    CHECK(outcome.exitCode == 2);
    CHECK_THAT(outcome.err, Contains("-o: ") && Contains("is the input"));
    CHECK(test::shell(run + "--in - --out " + out + " <" + in).exitCode == 2);
    CHECK(test::shell(run + "--in " + in + " --out - >>" + out).exitCode == 2);
    CHECK(readFile(in) == before);
  }
  CHECK(test::shell(run + "--in " + in + " --out " + folder / "other").exitCode == 0);
}

TEST_CASE("a file gives what a mod needs and does not declare") {
  Folder folder;
  NamedTensors tensors = flatOperands();
  tensors["ids"] = tensor(DType::I64, {6}, [](int64_t i) { return double(i / 2); });
  tensors["model.layers.0"] = tensor(DType::F32, {3}, [](int64_t) { return 0.0; });
  const std::string in = write(folder, tensors), mod = folder / "published.py";
  writeFile(mod, "from rare import prepare\n"
                 "def make(lengths):\n"
                 "  ids = prepare(lengths)\n"
                 "  def same(b, h, q_idx, kv_idx): return ids[q_idx] == ids[kv_idx]\n"
                 "  return same\n");
  const auto run = [&](const std::string& options) {
    const std::string out = folder / "out.safetensors";
    Outcome outcome = test::attnc("run --device cpu " + mod + " --in " + in + " --out " + out + " " + options);
    INFO(outcome.err);
    REQUIRE(outcome.exitCode == 0);
    NamedTensors result = test::readTensors(out);
    std::vector<double> first; // of v, of the first head
    for (int64_t q = 0; q < 4; ++q) first.push_back(at(result["out"], q * 16));
    return first;
  };
  const std::vector<double> pairs{0.5, 0.5, 2.5, 2.5};
  CHECK(run("--mod 'make(0)'") == pairs);
  // Declared otherwise: integers are made as wide as is declared.
  CHECK(run("--mod 'make(0)' --capture 'ids: i32[KV_LEN]'") == pairs);
  CHECK(run("--mod 'make(0)' --capture 'ids: u8[N]'") == pairs);
  tensors["ids"] = tensor(DType::I64, {6}, [](int64_t i) { return double(i * 100); });
  expectRefused(tensors, mod + " --mod 'make(0)' --capture 'ids: u8[N]'",
                "capture 'ids: u8[N]': the file's i64 has 300 as element 3, which does not fit");
  tensors["ids"] = tensor(DType::F32, {6}, [](int64_t i) { return double(i); });
  expectRefused(tensors, mod + " --mod 'make(0)' --capture 'ids: i32[N]'", "ids");
}
