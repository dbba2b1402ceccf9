// Wrong usage: each place that refuses a command line says how to repair it, in its own words.
#include "command.h"
#include "tensors.h"

#include <catch2/catch.hpp>

#include <filesystem>
#include <sstream>
#include <vector>

using namespace attnc;
using namespace attnc::cli;
using namespace attnc::test;
using Catch::Contains;

namespace {

const std::string kMods = ATTNC_SOURCE_DIR "/dsl/mods/";
const std::string kAlibi = kMods + "alibi.py ", kSliding = kMods + "sliding_window.py ";
const std::string kCausal = "--expr 'q_idx >= kv_idx' ";

struct Row {
  std::string arguments, hint;
};

void expectHints(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    INFO("attnc " << row.arguments);
    const Outcome outcome = attnc::test::attnc(row.arguments);
    CHECK(outcome.exitCode == 2);
    CHECK(outcome.out.empty());
    const size_t at = outcome.err.find("\nhint: ");
    REQUIRE(at != std::string::npos);
    const std::string hint = outcome.err.substr(at + 7);
    CHECK_THAT(hint, Contains(row.hint) && !Contains("hint:") && !Contains("--help"));
  }
}

} // namespace

TEST_CASE("the hint for a wrong mod on the command line is its repair") {
  Folder folder;
  writeFile(folder / "m.py", "WINDOW = 64\nreach: int\n"
                             "def mask_mod(b, h, q_idx, kv_idx): return q_idx - kv_idx < WINDOW * reach\n"
                             "def f(ids): return lambda b, h, q_idx, kv_idx: ids[q_idx] == ids[kv_idx]\n");
  REQUIRE(attnc::test::attnc("emit --stage ir " + kCausal + "-o " + folder / "m.ir").exitCode == 0);
  const std::string mod = folder / "m.py ", ir = folder / "m.ir ";
  expectHints({{"check", "give a mod: either a file or --expr"},
               {"check --expr score " + mod, "leave one of them out"},
               {"check more.py " + mod, "an option's value stands behind its name"},
               {"check -D WINDOW " + mod, "without spaces: window=64"},
               {"check -D WINDOW=1 -D WINDOW=2 " + mod, "leave one of them out"},
               {"check -D reach=5 " + mod, "`--set reach=5`"},
               {"check -D WINDO=5 " + mod, "did you mean `WINDOW`?"},
               {"mask --shape 1,1,1,64,64 --set WINDOW=5 " + mod, "-D WINDOW=5"},
               {"mask --shape 1,1,1,64,64 --set reac=5 " + mod, "did you mean reach?"},
               {"emit --stage ir --pin WINDOW=5 " + mod, "-D WINDOW=5"},
               {"emit --stage ir --pin reac=5 " + mod, "did you mean reach?"},
               {"emit --stage ir --pin reach=far " + mod, "--pin KV_LEN=8192"},
               {"check --mod 'f(rows)' " + mod, "--capture \"rows: i32[KV_LEN]\""},
               {"check --mod 'g(3)' " + mod, "the file has no function g"},
               {"check --mod nothere " + mod, "the file has no function nothere"},
               {"check --capture 'x: f64[N]' " + mod, "write `x: f32[N]`"},
               {"emit --stage ir --pin slopes=5 " + kAlibi, "slopes is a tensor, which each launch gives"},
               {"check --mod mask_mod " + ir, "leave --mod and --capture out"},
               {"check -D A=1 " + ir, "--pin and --set give numbers"},
               {"emit --stage ast " + ir, "give the text of the mod, or --stage ir"},
               {"emit --stage ir -o " + mod + mod, "give another file"}});
}

TEST_CASE("the hint for a wrong kernel is its repair") {
  const std::string emit = "emit --stage cu " + kCausal;
  expectHints(
      {{emit + "--head-dim 100", "pad q, k and v with zeros to 104, and keep the scale: `attnc run` has --scale 0.1"},
       {emit + "--head-dim 600", "a number such as 64, 128 or 256"},
       {emit + "--head-dim-v 100", "pad v with zeros to 104, and read 100 columns of out\n"},
       {emit + "--head-dim 576 --v-in-k 511", "take 512 columns of k, and read 511 of out: --v-in-k 512\n"},
       {emit + "--head-dim many", "a number such as 64, 128 or 256"},
       {emit + "--dtype fp64", "the widest is --dtype fp32"},
       {emit + "--dtype e5m2", "--fp8-kv"},
       {emit + "--dtype bf17", "did you mean bf16?"},
       {emit + "--kernel forwrd", "did you mean forward?"},
       {emit + "--kernel-family sm91", "did you mean sm90?"},
       {emit + "--arch hopper", "that GPU is --arch sm_90a"},
       {emit + "--arch RTX4090", "that GPU is --arch sm_89"},
       {emit + "--arch a100", "that GPU is --arch sm_80"},
       {emit + "--arch sm_75", "attnc needs a GPU of sm_80 (A100) or newer: --arch sm_80"},
       {emit + "--arch 7.5", "--arch sm_80"},
       {emit + "--arch sm_81", "did you mean sm_8"},
       {emit + "--arch fast", "--arch sm_80 for 8.0; native is the GPU of this machine"},
       {emit + "--arch sm_80 --launch 9", "count from 1: --launch 1"},
       {"emit --stage kernel-ir --launch 1 " + kCausal, "leave --launch out"},
       {"emit --stage cubin --arch sm_80 --kernel backward " + kCausal, "--launch 1 -o 1.cubin"}});
  // The spellings of one architecture.
  for (const char* arch : {"sm90", "9.0", "SM_90", "90a", "sm90a"})
    CHECK(attnc::test::attnc(emit + "--arch " + arch).exitCode == 0);
}

TEST_CASE("the hint for wrong operands is their repair") {
  const std::string run = "run " + kCausal, random = run + "--random 1,1,1,8,8,8 ";
  expectHints(
      {{run, "e.g. --random 1,4,4,512,512,64"},
       {run + "--in a --random 1,1,1,8,8,8", "leave one of them out"},
       {run + "--in a --dtype bf16", "add --random"},
       {run + "--random 1,1,1", "e.g. --random 2,16,16,4096,4096"},
       {run + "--random 1,3,2,8,8,8", "each KV head serves as many query heads: H 2, HKV 2"},
       {run + "--random 1,1,1,8,8,100", "pad q, k and v with zeros to 104"},
       {run + "--random 9999999,1,1,9999999,1,128", "take a smaller batch"},
       {random + "--device cpu --verify", "leave --device cpu out"},
       {random + "--kernel decode --backward", "leave --kernel decode out"},
       {random + "--page-size 7", "e.g. --page-size 64"},
       {random + "--page-size 64", "take KV_LEN 64"},
       {run + "--in a --page-size 64", "a file has pages where it has a tensor page_table"},
       {random + "--backward --page-size 8", "leave --page-size out"},
       {random + "--deterministic", "ask for it, with --backward"},
       {random + "--gradients none", "ask for it, with --backward"},
       {random + "--seed -1", "e.g. 42"},
       {random + "--seed", "write --seed"},
       {random + "--lse=maybe", "write --lse by itself"},
       {random + "--pin H=5", "give --random the pinned value, or leave the pin out"},
       {random + "--max-work 0", "write a whole number above 0, or leave --max-work out"},
       {random + "--scale nan", "e.g. 0.125"},
       {random + "--large 0", "e.g. --large -1e9"},
       {random + "--large -1e9,tile", "did you mean tiles?"},
       {"run --random 1,1,1,8,8,8 --set window=1.5 " + kSliding, "the mod declares `window: int`: --set window=64"},
       {"run --random 1,1,1,8,8,8 --set window=abc " + kSliding, "the mod declares `window: int`: --set window=64"},
       {"run --random 1,1,1,8,8,8 --set slopes=1 " + kAlibi, "give it in the file of --in"},
       {"run " + kSliding + "--random 1,1,1,8,8,8 --set window = 3", "leave out the spaces around the ="},
       {"run - --in -", "give the mod as a file, or as --expr"},
       {"run --random 1,1,1,8,8,8 --out " + kAlibi + kAlibi, "give another file"},
       {run + "--in a --save-operands b", "leave it out, or draw: --random"},
       {random + "--save-operands -", "e.g. --save-operands operands.safetensors"},
       {random + "--save-operands a --out a", "give two files"},
       {"run --random 1,1,1,8,8,8 --save-operands " + kAlibi + kAlibi, "give another file"}});
}

TEST_CASE("the hint of each other command is the repair") {
  Folder folder;
  const std::string cache = "cache prune ";
  expectHints(
      {{"mask --shape 1,1,1,64,64 --rows 5 " + kCausal, "e.g. --rows 0:256"},
       {"mask --shape 1,1,1,64,64 --rows 99:128 " + kCausal, "begin before it, --rows 0:64"},
       {"mask --shape 1,1,1,64,64 --head 3 " + kCausal, "count from 0, --head 0"},
       {"mask --shape 1,1,1,64,64 --query x " + kCausal, "a position, --query 12"},
       {"mask --shape 1,1,1,64,64 --block 7 " + kCausal, "--block 128,64"},
       {"probe --at 0,0,9999999,0 " + kCausal, "places count from 0"},
       {"probe --at 0,0,0,0 --expr 'score * 2'", "give one, --score 1.5"},
       {"explain --arch sm_80 --shape 1,1,1,1,100 --kernel decode --page-size 64 " + kCausal, "take KV_LEN 128"},
       {"bench --shape 0,1,1,8,8 " + kCausal, "at least 1"},
       {"bench --in a --shape 1,1,1,8,8 " + kCausal, "leave one of them out"},
       {"tune --shape 1,1,1,8,8 --tile 64x64x4 " + kCausal, "leave it out; `attnc bench --tile`"},
       {cache + "--older-than soon", "12h, 30d, 2w"},
       {cache + "--max-size big", "500M, 2G"},
       {"pack --arch sm_80 -o " + folder / "p" + " - -", "give files, or - only"}});
}

TEST_CASE("what is wrong with a file is told with its repair") {
  const auto zero = [](int64_t) { return 0.0; };
  Folder folder;
  const std::string in = folder / "in.safetensors";
  const auto expectHint = [&](const std::string& arguments, const std::string& message, const std::string& hint) {
    const Outcome outcome = attnc::test::attnc("run --device cpu " + arguments);
    INFO(arguments << "\n" << outcome.err);
    CHECK(outcome.exitCode == 3);
    CHECK_THAT(outcome.err, Contains(message) && Contains("\nhint: " + hint));
  };
  const auto expectHintOf = [&](NamedTensors tensors, const std::string& message, const std::string& hint) {
    REQUIRE(writeSafetensors(in, tensors));
    expectHint(kAlibi + "--in " + in, message, hint);
  };
  const auto operands = [&](std::vector<int64_t> q, std::vector<int64_t> kv) {
    return NamedTensors{{"q", tensor(DType::F16, q, zero)},
                        {"k", tensor(DType::F16, kv, zero)},
                        {"v", tensor(DType::F16, kv, zero)},
                        {"slopes", tensor(DType::F32, {4}, zero)}};
  };
  expectHintOf(operands({2, 100, 4, 8}, {2, 100, 2, 8}), "but H is 100",
               "q [2, 100, 4, 8] and k [2, 100, 2, 8] look like [batch, length, heads, head_dim]");
  expectHintOf(operands({4, 9, 8}, {4, 9, 8}), "q has 3 axes", "q of one batch entry: save q.unsqueeze(0)");
  expectHintOf(operands({1, 5, 9, 8}, {1, 2, 9, 8}), "heads do not fit", "2 KV heads serve 4 or 6 query heads, not 5");
  expectHintOf(operands({1, 4, 9, 100}, {1, 4, 9, 100}), "head dim 100", "pad it with zeros to 104");
  NamedTensors tensors = operands({1, 4, 9, 8}, {1, 4, 9, 8});
  tensors["k"].dtype = tensors["v"].dtype = DType::BF16;
  expectHintOf(tensors, "k is bf16, q is f16", "save k.to(q.dtype)");
  tensors = operands({1, 4, 9, 8}, {1, 4, 9, 8});
  tensors["slope"] = tensors.extract("slopes").mapped();
  expectHintOf(tensors, "'slopes: f32[H]' is missing", "the file has 'slope': save it as 'slopes'");
  tensors.erase("slope");
  tensors["other"] = tensor(DType::F32, {4}, zero);
  expectHintOf(tensors, "is missing", "save it in the file under this name; the file has ");
  tensors["query"] = tensors.extract("q").mapped();
  expectHintOf(tensors, "no tensor 'q'", "the file has ");
  writeFile(folder / "model.pt", "PK\3\4 what torch.save writes");
  expectHint(kAlibi + "--in " + folder / "model.pt", "no safetensors file", "in Python: from safetensors.torch import");
  expectHint(kAlibi + "--in " + folder / "im.safetensors", "No such file", "did you mean '" + in + "'?");
  expectHint(kMods + "alibi --in " + in, "No such file", "did you mean '");
}

TEST_CASE("tensors that seem to be transposed are warned of, where nothing fails") {
  const auto zero = [](int64_t) { return 0.0; };
  Folder folder;
  const auto warningOf = [&](std::vector<int64_t> q, std::vector<int64_t> kv) {
    REQUIRE(writeSafetensors(folder / "in", {{"q", tensor(DType::F16, q, zero)},
                                             {"k", tensor(DType::F16, kv, zero)},
                                             {"v", tensor(DType::F16, kv, zero)}}));
    const Outcome outcome = attnc::test::attnc("run --device cpu " + kCausal + "--in " + folder / "in");
    CHECK(outcome.exitCode == 0);
    return outcome.err;
  };
  CHECK_THAT(warningOf({1, 100, 4, 8}, {1, 100, 2, 8}),
             Contains("warning: q [1, 100, 4, 8] and k [1, 100, 2, 8] look like [batch, length, heads, head_dim]") &&
                 Contains("save q.transpose(1, 2).contiguous()"));
  CHECK(warningOf({1, 4, 100, 8}, {1, 2, 100, 8}).empty());
  CHECK(warningOf({1, 96, 1, 8}, {1, 96, 100, 8}).empty()); // one query, many heads
  CHECK(warningOf({1, 32, 16, 8}, {1, 32, 16, 8}).empty()); // a small problem
}

TEST_CASE("each place that refuses a command line has a hint") {
  for (const auto& entry : std::filesystem::directory_iterator(ATTNC_SOURCE_DIR "/tools/attnc")) {
    if (entry.path().extension() != ".cpp" || entry.path().filename() == "usage.cpp") continue;
    std::istringstream lines(readFile(entry.path().string()));
    size_t number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      if (line.find("CLI::ValidationError(") != std::string::npos)
        FAIL_CHECK(entry.path().string() << ":" << number << ": throw wrongUsage(), which takes a hint:\n" << line);
    }
  }
}
