// Exit codes and messages, and emit and check.
#include "command.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <sstream>

using namespace attnc::test;
using Catch::Contains;

namespace {

const std::string kMods = ATTNC_SOURCE_DIR "/dsl/mods/";
const std::string kCausal = "--expr 'q_idx >= kv_idx' ";

std::vector<std::string> libraryMods() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(kMods))
    if (entry.path().extension() == ".py") paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  REQUIRE(paths.size() >= 12);
  return paths;
}

struct Row {
  std::string arguments, message;
};

/// All end with this exit code, nothing on stdout, and the message on stderr.
void expectFailures(int exitCode, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    INFO("attnc " << row.arguments);
    Outcome outcome = attnc::test::attnc(row.arguments);
    CHECK(outcome.exitCode == exitCode);
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err, Contains(row.message));
    if (exitCode == 2) CHECK_THAT(outcome.err, Contains("\nhint: ") && !Contains("--help`") && !Contains(" --help\n"));
  }
}

} // namespace

TEST_CASE("emit prints the user's mod as ir, and with what is derived for a kernel as kernel-ir") {
  const std::string softcap = " " ATTNC_SOURCE_DIR "/dsl/mods/softcap.py";
  const std::string mod = attnc::test::attnc("emit --stage ir" + softcap).out;
  const std::string wide = attnc::test::attnc("emit --stage kernel-ir --arch sm_80" + softcap).out;
  const std::string plain =
      attnc::test::attnc("emit --stage kernel-ir --arch sm_80 --kernel-family naive" + softcap).out;
  const auto has = [](const std::string& text, const char* output) { return text.find(output) != std::string::npos; };
  CHECK_FALSE(has(mod, "output kv_end"));
  CHECK(has(wide, "output scale_in(b, h) -> "));
  CHECK(has(wide, "output kv_end(b, h, q_idx) -> "));
  CHECK(has(plain, "output kv_end(b, h, q_idx) -> "));
  CHECK_FALSE(has(plain, "output scale_in"));
  CHECK(attnc::test::attnc("emit --stage kernel-ir --arch sm_80 --kernel-family sm90" + softcap).exitCode == 2);
}

TEST_CASE("help and version go to stdout and succeed") {
  for (const char* command : {"", "check ", "mask ", "probe ", "emit ", "explain ", "shard ", "run ", "completion "}) {
    Outcome help = attnc::test::attnc(std::string(command) + "--help");
    CHECK(help.exitCode == 0);
    CHECK_THAT(help.out, Contains("Example"));
    CHECK(help.err.empty());
    for (const char* noise : {"->", " in {", "TEXT:", "[OPTIONS] OR"}) CHECK(help.out.find(noise) == std::string::npos);
  }
}

TEST_CASE("the version tells what attnc is built from and what it compiles with") {
  Outcome version = attnc::test::attnc("--version");
  CHECK(version.exitCode == 0);
  CHECK(std::regex_match(version.out, std::regex("attnc [0-9.]+\nNVRTC [^\n]+\nLLVM [0-9.]+[^\n]*\n")));
  Outcome none = shell("ATTNC_NVRTC=/no/such/libnvrtc.so.13 $ATTNC --version");
  CHECK(none.exitCode == 0);
  CHECK_THAT(none.out, Contains("NVRTC not usable: ") && Contains("not found") && Contains("ATTNC_NVRTC"));
  if (version.out.find("not usable") == std::string::npos)
    CHECK(std::regex_search(version.out, std::regex("NVRTC 1[0-9]\\.[0-9]+\\.[0-9]+ \\(CL-[0-9]+\\), .*libnvrtc")));
}

TEST_CASE("the mod that --help shows is one, and has the three kinds of numbers") {
  const std::string help = attnc::test::attnc("--help").out;
  Folder folder;
  std::string mod;
  std::istringstream lines(help.substr(0, help.find("-D SINK")));
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("    ", 0) == 0 || line.empty()) mod += line.empty() ? "\n" : line.substr(4) + "\n";
  writeFile(folder / "m.py", mod);
  INFO(mod);
  Outcome outcome = attnc::test::attnc("check -D SINK=8 " + folder / "m.py");
  CHECK(outcome.exitCode == 0);
  CHECK_THAT(outcome.out, Contains("slopes: f32[H]") && Contains("window: int") && Contains("score_mod, mask_mod"));
  CHECK_THAT(help, Contains("-D SINK=8") && Contains("--set window=9") && Contains("--pin KV_LEN=8192"));
}

TEST_CASE("the language is in the program") {
  Outcome language = attnc::test::attnc("check --language");
  CHECK(language.exitCode == 0);
  CHECK(language.out == readFile(ATTNC_SOURCE_DIR "/dsl/SPEC.md"));
  Folder folder;
  writeFile(folder / "m.py", "def mask_mod(b, h, q_idx, kv_idx):\n    yield q_idx\n");
  Outcome refused = attnc::test::attnc("check " + folder / "m.py");
  CHECK(refused.exitCode == 1);
  CHECK_THAT(refused.err, Contains("attnc check --language") && !Contains("SPEC.md"));
}

TEST_CASE("a result that cannot be written is exit code 3, that of --help and --version, too") {
  Folder folder;
  const std::string mod = folder / "m.py";
  writeFile(mod, "q_idx >= kv_idx\n");
  for (const std::string& command : std::vector<std::string>{
           "--help", "--version", "run --help", "check " + mod, "check --language", "emit --stage ir " + mod,
           "run --device cpu --random 1,1,1,4,4,8 " + mod, "run --device cpu --random 1,1,1,4,4,8 --out - " + mod})
    for (const char* unusable : {">&-", ">/dev/full"}) {
      INFO(command << " " << unusable);
      Outcome outcome = shell("$ATTNC " + command + " " + unusable);
      CHECK(outcome.exitCode == 3);
      CHECK_THAT(outcome.err, Contains("attnc: error: cannot write") && Contains("stdout"));
    }
}

TEST_CASE("a wrong mod is exit code 1 with the place") {
  Folder folder;
  writeFile(folder / "m.py", "def mask_mod(b, h, q, kv):\n    return q >= kw\n");
  writeFile(folder / "m.ir", "output score(score, b, h, q_idx, kv_idx) -> %7\n");
  expectFailures(1, {{"check --expr 'q_idx >='", "<expr>:1:"},
                     {"check " + folder / "m.py", "m.py:2:"},
                     {"check " + folder / "m.ir", "m.ir:1:"},
                     {"emit --stage ir " + folder / "m.py", "m.py:2:"},
                     {"run --random 1,1,1,8,8,8 " + folder / "m.py", "m.py:2:"}});
}

TEST_CASE("wrong usage is exit code 2") {
  const std::string run = "run " + kCausal;
  expectFailures(
      2,
      {{"cache", "no command is given; there are path, ls"},
       {"emit " + kCausal, "--stage: say which stage to print"},
       {"check", "MOD: no mod is given\nhint: give a mod: either a file or --expr"},
       {"check " + kMods + "alibi.py --expr score", "MOD: a file and --expr are given"},
       {"check - extra --expr score", "unexpected argument 'extra'"},
       {"check " + kMods + "alibi.py -D SLOPE=3", "the mod has no constant `SLOPE`"},
       {"check " + kMods + "alibi.py -D CAUSAL=x+", "expected an expression"},
       {"check " + kMods + "alibi.py --mod 'rare(3)'", "`rare` is not defined"},
       {"check " + kMods + "alibi.py --mod 'x = 3'", "is an expression"},
       {"check " + kMods + "alibi.py --capture 'x = 3'", "declares no capture"},
       {"check -D WINDOW " + kMods + "alibi.py", "NAME=VALUE"},
       {"emit " + kCausal, "--stage"},
       {"emit --stage nvvm " + kCausal, "nvvm"},
       {"emit --stage ptx --launcher " + kCausal, "--launcher: ptx has no launcher"},
       {"emit --stage cu --launcher --launch 1 " + kCausal, "--launcher: it launches the whole kernel"},
       {"emit --stage cu --launcher " + kCausal, "--launcher: it makes one launch"},
       {"emit --stage cu --launcher --shape 64 " + kMods + "sliding_window.py", "the launch needs a value of window"},
       {"emit --stage cu --launcher --pin KV_LEN=4096 --shape 64 " + kCausal, "pinned to 4096"},
       {"emit --stage cu --launcher --shape 64 --strides x=1,2,3 " + kCausal, "'x' is no tensor of rows"},
       {"emit --stage cu --shape 64 " + kCausal, "are of the launch of --launcher"},
       {"emit --print-after level " + kCausal, "there is no pass 'level'"},
       {"emit --stage cu --head-dim 7 " + kCausal, "multiple of 8"},
       {"emit --stage cu --head-dim 584 " + kCausal, "multiple of 8"},
       {"emit --stage cu --head-dim-v many " + kCausal, "multiple of 8"},
       {"emit --stage cu --head-dim-v 520 " + kCausal, "multiple of 8 from 8 to 512"},
       {"emit --stage cu --head-dim 128 --v-in-k 256 " + kCausal, "k has 128 columns, so v cannot be its first 256"},
       {"explain --head-dim 128 --v-in-k 256 " + kCausal, "k has 128 columns, so v cannot be its first 256"},
       {"explain --shape 1,1,1,8,8,128 --v-in-k 256 " + kCausal, "k has 128 columns, so v cannot be its first 256"},
       {"pack -o /dev/null --head-dim 256,128 --v-in-k 256 " + kCausal, "k has 128 columns"},
       {"emit --stage cu --head-dim 576 --v-in-k 512 --head-dim-v 128 " + kCausal, "--head-dim-v excludes --v-in-k"},
       {"explain --head-dim 576 --v-in-k 512 --head-dim-v 128 " + kCausal, "--head-dim-v excludes --v-in-k"},
       {"pack -o /dev/null --head-dim 576 --v-in-k 512 --head-dim-v 128 " + kCausal, "--head-dim-v excludes --v-in-k"},
       {"emit --stage cu --row-scales " + kCausal, "--row-scales: q, k and v are bf16, and only e4m3 has scales"},
       {"explain --row-scales " + kCausal, "--row-scales: q, k and v are bf16, and only e4m3 has scales"},
       {"pack -o /dev/null --row-scales " + kCausal, "--row-scales: q, k and v are bf16, and only e4m3 has scales"},
       {run + "--random 1,1,1,8,8,8 --row-scales", "--row-scales: q, k and v are bf16, and only e4m3 has scales"},
       {"bench --shape 8 --row-scales " + kCausal, "--row-scales: q, k and v are bf16, and only e4m3 has scales"},
       {"emit --stage cu --dtype fp64 " + kCausal, "fp64"},
       {"emit --stage cu --kernel sideways " + kCausal, "sideways"},
       {"emit --stage cu --kernel-family sm70 " + kCausal, "sm70"},
       {"emit --stage cu --pin KV_LEN=long " + kCausal, "KV_LEN=long"},
       {"emit --stage cu --pin KV_LEN=-1 " + kCausal, "KV_LEN=-1"},
       {"emit --stage cu --pin KV_LEM=8 " + kCausal,
        "number 'KV_LEM'; it has B, H, HKV, Q_LEN, KV_LEN\nhint: did you mean KV_LEN?"},
       {"emit --stage ir --pin KV_LEM=8 " + kCausal, "KV_LEM"},
       {"emit --stage cu --arch sm_00 " + kCausal, "'sm_00' is no architecture"},
       {"emit --stage cu --arch sm_999 " + kCausal, "sm_80, sm_86"},
       {"emit --stage cubin --arch sm_80a " + kCausal, "sm_80a"},
       {"emit --stage cu --arch hopper " + kCausal, "hopper"},
       {"emit --stage cu --arch sm_80 --kernel-family sm90 " + kCausal, "sm90"},
       {"emit --stage cu --tf32 " + kCausal, "tf32"},
       {"emit --stage cu --low-rank-error 1.5 " + kCausal, "1.5 is not a number in [0, 1)"},
       {"emit --stage cu --kernel backward --tf32 " + kCausal, "tf32"},
       {"emit --stage kernel-ir --launch 1 --kernel bwd " + kCausal, "--launch: kernel-ir is of the whole kernel"},
       {"emit --stage cubin --arch sm_80 --kernel backward " + kCausal,
        "choose one of 4: 1 attnc_backward_delta, 2 attnc_backward, 3 attnc_backward_finish, 4 attnc_backward_large"},
       {"emit --stage cu --arch sm_80 --kernel bwd --launch 6 " + kCausal, "there is no launch 6; the kernel has 1"},
       {"emit --stage cu --arch sm_80 --kernel bwd --launch 0 " + kCausal, "there is no launch 0"},
       {"emit --stage cu --kernel block-mask --launch 2 " + kCausal, "there is no launch 2"},
       {"emit --stage cu --arch sm_80 --arch sm_89 " + kCausal, "attnc: error: --arch is given more than once"},
       {"emit --stage cu -D A=1 -D B=2 -D A=1 " + kCausal, "-D: 'A' is given twice"},
       {"emit --stage cu --pin KV_LEN=8 --pin KV_LEN=9 " + kCausal, "--pin: 'KV_LEN' is given twice"},
       {run, "--in FILE or --random"},
       {run + "--in a --random 1,1,1,1,1,8", "--in FILE or --random"},
       {run + "--in a --dtype bf16", "--random"},
       {run + "--random 1,1,1", "numbers B,H,HKV,Q_LEN,KV_LEN,D"},
       {run + "--random 1,2,3,4,5,a", "'a'"},
       {run + "--random 1,2,3,4,5,-8", "'-8'"},
       {run + "--random 1,3,2,4,5,8", "multiple of HKV"},
       {run + "--random 1,3,0,4,5,8", "multiple of HKV"},
       {run + "--random 1,1,1,4,5,0", "multiple of 8"},
       {run + "--random 1,1,1,4,5,12", "multiple of 8"},
       {run + "--random 1,1,1,4,5,584", "multiple of 8"},
       {run + "--random 9999999,1,1,9999999,1,128", "2^34"},
       {run + "--random 1,1,1,8,8,8 --device tpu", "tpu"},
       {run + "--random 1,1,1,8,8,8 --device cpu --verify", "--verify"},
       {run + "--random 1,1,1,8,8,8 --set window", "NAME=VALUE"},
       {run + "--random 1,1,1,8,8,8 --set window=3", "captures nothing"},
       {"check --expr score --no-warn unused", "'unused' is none of comparison-precedence"},
       {"run " + kMods + "sliding_window.py --random 1,1,1,8,8,8 --set widow=3", "window: int"},
       {"run " + kMods + "sliding_window.py --random 1,1,1,8,8,8 --set window=3.5", "integer"},
       {"run " + kMods + "sliding_window.py --random 1,1,1,8,8,8 --set window=9999999999", "integer"},
       {"run " + kMods + "softcap.py --random 1,1,1,8,8,8 --set cap=wide", "number"},
       {"run " + kMods + "alibi.py --random 1,1,1,8,8,8 --set slopes=1", "tensor"},
       {run + "--random 1,1,1,8,8,8 --scale wide", "--scale"},
       {run + "--random 1,1,1,8,8,8 --scale nan", "--scale"},
       {run + "--random 1,1,1,8,8,8 --scale -inf", "--scale"},
       {run + "--random 1,1,1,8,8,8 --scale 1e39", "--scale"},
       {run + "--random 1,1,1,8,8,8 --large wide",
        "'wide' is no finite number that fits into f32\nhint: e.g. --large -1e9"},
       {run + "--random 1,1,1,8,8,8 --large -1e39", "--large: '-1e39'"},
       {run + "--random 1,1,1,8,8,8 --large 0", "0 is not large"},
       {run + "--random 1,1,1,8,8,8 --large -1e9,tile", "--large: 'tile' is none of half, first-half, rows, tiles, "
                                                        "scattered, mixed, all\nhint: did you mean tiles?"},
       {run + "--large -1e9", "--random"},
       {run + "--random 1,1,1,8,8,8 --seed -1", "--seed"},
       {run + "--random 1,1,1,8,8,8 --seed 1e3", "--seed"},
       {run + "--random 1,1,1,8,8,8 --seed 18446744073709551616", "2^64 - 1"},
       {"run - --in -", "stdin can be read once"},
       {"explain - --in -", "stdin can be read once"},
       {"run " + kMods + "sliding_window.py --random 1,1,1,8,8,8 --set window=3 --set window=4",
        "--set: 'window' is given twice"}});
}

TEST_CASE("an environment that does not serve is exit code 3") {
  expectFailures(3, {{"check /no/such/mod.py", "/no/such/mod.py"},
                     {"check /tmp", "directory"},
                     {"emit --stage ir " + kCausal + "-o /no/such/folder/a.ir", "/no/such/folder"}});
  Outcome closed = shell("$ATTNC check - <&-");
  CHECK(closed.exitCode == 3);
  CHECK_THAT(closed.err, Contains("attnc: error: cannot read stdin"));
  Outcome full = attnc::test::attnc("emit --stage ir " + kCausal + "-o /dev/full");
  CHECK(full.exitCode == 3);
}

TEST_CASE("what is unknown is named, with what is near") {
  const std::string emit = "emit --stage cu " + kCausal;
  expectFailures(
      2,
      {{"chek m.py", "attnc: error: unknown command 'chek'\nhint: did you mean check?"},
       {"Explian", "unknown command 'Explian'\nhint: did you mean explain?"},
       {"frobnicate", "attnc: error: unknown command 'frobnicate'\nhint: there are check, infer, mask, "},
       {"--versoin", "unknown option '--versoin'\nhint: did you mean --version?"},
       {"emit --stge ptx --expr score", "unknown option '--stge'\nhint: did you mean --stage?"},
       {"emit --head_dims=64 --expr score --stage ir", "unknown option '--head_dims'\nhint: did you mean --head-dim?"},
       {"run --expr score --rndom 1,1,1,8,8,8", "unknown option '--rndom'\nhint: did you mean --random?"},
       {"check --frobnicate", "attnc: error: unknown option '--frobnicate'\nhint: there are --"},
       {emit + "--dtype fp64", "--dtype: 'fp64' is none of bf16, fp16, fp32, e4m3\nhint: the widest is --dtype fp32"},
       {emit + "--kernel-family sm91", "'sm91' is none of auto, naive, sm80, sm90, grid\nhint: did you mean sm90?"},
       {"emit --stage cubim " + kCausal, "--stage: 'cubim' is none of ast, ir, grad-ir, kernel-ir, mod, cu, ptx, "
                                         "cubin, sass\nhint: did you mean cubin?"},
       {emit + "--kernel block", "--kernel: 'block' is none of forward, backward, decode, block-mask"},
       {"run --random 1,1,1,8,8,8 --device gpus " + kCausal,
        "--device: 'gpus' is none of auto, cuda, cpu\nhint: did you mean gpu?"}});
}

TEST_CASE("a number that is given by the wrong option is told the right one") {
  Folder folder;
  writeFile(folder / "m.py", "WINDOW = 64\nreach: int\n"
                             "def mask_mod(b, h, q_idx, kv_idx): return q_idx - kv_idx < WINDOW * reach\n");
  const std::string mod = folder / "m.py ";
  expectFailures(
      2, {{"check -D reach=5 " + mod, "hint: `reach` is a capture, which the launch gives: `--set reach=5`"},
          {"check -D WINDO=5 " + mod, "hint: did you mean `WINDOW`?"},
          {"mask --set WINDOW=5 " + mod, "hint: WINDOW is a constant of the text, which is compiled in: -D WINDOW=5"},
          {"mask --set reac=5 " + mod, "hint: did you mean reach?"},
          {"emit --stage ir --pin WINDOW=5 " + mod, "-D WINDOW=5"}});
}

TEST_CASE("an expression of the command line that lacks a name is told how to declare it") {
  Folder folder;
  writeFile(folder / "m.py", "def make(ids):\n  return lambda b, h, q, k: ids[q] == ids[k]\n");
  expectFailures(2, {{"check --mod 'make(doc_id)' " + folder / "m.py", "--capture \"doc_id: i32[KV_LEN]\""}});
}

TEST_CASE("sm_90 means sm_90a, and says so once") {
  const std::string emit = "emit --stage cu " + kCausal + "--arch ";
  const Outcome plain = attnc::test::attnc(emit + "sm_90");
  CHECK(plain.exitCode == 0);
  CHECK(plain.err == "attnc: note: sm_90 means sm_90a; compute_90 is that GPU with the kernels that all GPUs have\n");
  CHECK(plain.out == attnc::test::printed(emit + "sm_90a"));
  CHECK_THAT(attnc::test::printed(emit + "compute_90"), Contains("namespace attnc::sm80"));
  CHECK_THAT(plain.out, !Contains("namespace attnc::sm80"));
}

TEST_CASE("check warns, and --werror makes errors of it") {
  Folder folder;
  writeFile(folder / "m.py", "slopes: f32[H]\ndef mask_mod(b, h, q_idx, kv_idx):\n  return q_idx < 4 & kv_idx < 4\n");
  const std::string mod = folder / "m.py", slip = "m.py:3:10: warning: `&` binds tighter than comparisons";
  for (const char* command : {"check ", "emit --stage ir ", "explain --arch sm_80 --shape 1,1,1,64,64 "}) {
    const Outcome outcome = attnc::test::attnc(command + mod);
    CHECK(outcome.exitCode == 0);
    CHECK_THAT(outcome.err, Contains(slip));
    CHECK_THAT(outcome.err, Contains("m.py:1:1: warning: nothing reads the capture `slopes` [unused-capture]"));
  }
  const Outcome refused = attnc::test::attnc("check --werror " + mod);
  CHECK(refused.exitCode == 1);
  CHECK(refused.out.empty());
  CHECK_THAT(refused.err, Contains(slip) && Contains("--no-warn unused-capture"));
  const Outcome one = attnc::test::attnc("check --werror --no-warn unused-capture " + mod);
  CHECK(one.exitCode == 1);
  CHECK_THAT(one.err, Contains(slip) && !Contains("[unused-capture]"));
  CHECK(attnc::test::printed("check --werror --no-warn unused_capture --no-warn comparison-precedence " + mod)
            .find("ok") != std::string::npos);
}

TEST_CASE("check says which functions of a script it took") {
  Folder folder;
  writeFile(folder / "m.py", "def causal(b, h, q_idx, kv_idx): return q_idx >= kv_idx\n"
                             "def near(b, h, q_idx, kv_idx): return q_idx - kv_idx < 9\n"
                             "if __name__ == '__main__':\n"
                             "  bm = create_block_mask(and_masks(causal, near), 1, 1, 8, 8)\n");
  const std::string said = "mask_mod is `and_masks(causal, near)` (line 4): given to `create_block_mask` in line 4; "
                           "`--mod` takes another: `causal` (line 1), `near` (line 2)";
  CHECK_THAT(attnc::test::printed("check " + folder / "m.py"), Contains(said));
  const Outcome emitted = attnc::test::attnc("emit --stage ir " + folder / "m.py");
  CHECK(emitted.exitCode == 0);
  CHECK(emitted.err == "attnc: note: " + said + "\n");
}

TEST_CASE("every error that has no place in a mod begins with attnc: error:") {
  for (const char* arguments : {"chek", "check", "check --no", "emit --expr score", "emit --stage x --expr score",
                                "run --expr score", "run --expr score --random 1,1,1", "check /no/such/mod.py",
                                "check --expr score -D A=1", "explain --expr score --head-dim", "run --in x --out"}) {
    Outcome outcome = attnc::test::attnc(arguments);
    INFO(arguments << "\n" << outcome.err);
    CHECK(outcome.exitCode >= 2);
    CHECK_THAT(outcome.err, Catch::StartsWith("attnc: error: "));
  }
}

TEST_CASE("enumerations take any case and the usual names") {
  auto source = [](const std::string& options) {
    Outcome outcome = attnc::test::attnc("emit " + kCausal + options);
    INFO(options << "\n" << outcome.err);
    CHECK(outcome.exitCode == 0);
    return outcome.out;
  };
  const std::string half = source("--stage cu --arch sm_80 --dtype fp16"),
                    brain = source("--stage cu --arch sm_80 --dtype bf16"),
                    full = source("--stage cu --arch sm_80 --dtype fp32"), hopper = source("--stage cu --arch sm_90a");
  CHECK(half != brain);
  for (const char* name : {"f16", "float16", "HALF", "FP16"})
    CHECK(source("--stage cu --arch sm_80 --dtype " + std::string(name)) == half);
  for (const char* name : {"bfloat16", "BF16"})
    CHECK(source("--stage cu --arch sm_80 --dtype " + std::string(name)) == brain);
  for (const char* name : {"f32", "float32", "float"})
    CHECK(source("--stage cu --arch sm_80 --dtype " + std::string(name)) == full);
  for (const char* name : {"SM_90A", "sm90a", "compute_90a", "90a", "9.0a"})
    CHECK(source("--stage CU --arch " + std::string(name)) == hopper);
  CHECK(source("--stage cu --arch sm_80 --kernel block_mask") == source("--stage cuda --arch 8.0 --kernel Block-Mask"));
  CHECK(source("--stage cu --arch sm_80 --kernel-family SM80") ==
        source("--stage cu --arch sm_80 --kernel-family sm_80"));
}

TEST_CASE("native is the arch of the GPU, and exit code 3 without one") {
  const std::string explain = "explain --arch native " + kCausal;
  Outcome here = attnc::test::attnc(explain), emitted = attnc::test::attnc("emit --stage cu --arch Native " + kCausal);
  if (here.exitCode == 0) {
    CHECK_THAT(here.out, Contains(" for sm_"));
    CHECK(emitted.exitCode == 0);
    return;
  }
  for (const Outcome& outcome : {here, emitted}) {
    CHECK(outcome.exitCode == 3);
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err, Catch::StartsWith("attnc: error: "));
  }
}

TEST_CASE("a file named - is stdin or stdout") {
  Folder folder;
  writeFile(folder / "m.py", "N = 3\ndef mask_mod(b, h, q_idx, kv_idx): return q_idx >= kv_idx * N\n");
  const std::string mod = folder / "m.py";
  Outcome check = shell("$ATTNC check - -D N=5 < " + mod);
  CHECK(check.exitCode == 0);
  CHECK_THAT(check.out, Contains("<stdin>: ok"));
  Outcome wrong = shell("echo 'q_idx >=' | $ATTNC check -");
  CHECK(wrong.exitCode == 1);
  CHECK_THAT(wrong.err, Contains("<stdin>:1:"));
  // IR goes through a pipe as it goes through a file.
  Outcome piped = shell("$ATTNC emit --stage ir -o - " + mod + " | $ATTNC emit --stage ir -");
  CHECK(piped.exitCode == 0);
  CHECK(piped.out == attnc::test::attnc("emit --stage ir " + mod).out);
  Outcome defined = shell("$ATTNC emit --stage ir " + mod + " | $ATTNC check - -D N=5");
  CHECK(defined.exitCode == 2);
  CHECK_THAT(defined.err, Contains("IR has no constants"));
  CHECK(shell("head -c 20000000 /dev/zero | tr '\\0' ' ' | $ATTNC check -").exitCode == 3);
}

TEST_CASE("an output onto the mod is refused, by whatever path") {
  Folder folder;
  const std::string mod = folder / "m.py", text = "q_idx >= kv_idx\n";
  writeFile(mod, text);
  std::filesystem::create_symlink("m.py", folder / "soft");
  std::filesystem::create_hard_link(mod, folder / "hard");
  for (const std::string& out : {mod, folder / "./m.py", folder / "soft", folder / "hard"}) {
    INFO(out);
    Outcome emit = attnc::test::attnc("emit --stage ir " + mod + " -o " + out);
    CHECK(emit.exitCode == 2);
    CHECK_THAT(emit.err, Contains("-o: ") && Contains("is the input"));
    CHECK(attnc::test::attnc("run --device cpu --random 1,1,1,4,4,8 " + mod + " --out " + out).exitCode == 2);
    CHECK(shell("$ATTNC emit --stage ir - -o " + out + " <" + mod).exitCode == 2);
    CHECK(shell("$ATTNC emit --stage ir " + mod + " >>" + out).exitCode == 2);
    CHECK(readFile(mod) == text);
  }
  CHECK(folder.files() == 3);
  CHECK(attnc::test::attnc("emit --stage ir /dev/null -o /dev/null").exitCode == 1); // no mod, but nothing is lost
}

TEST_CASE("check shows what a mod captures and which gathers are clamped") {
  Outcome alibi = attnc::test::attnc("check " + kMods + "alibi.py");
  CHECK(alibi.exitCode == 0);
  CHECK(alibi.err.empty());
  for (const char* part : {"score_mod, mask_mod", "slopes: f32[H]", "1 head", "proven inside", "hash"})
    CHECK_THAT(alibi.out, Contains(part));
  Outcome document = attnc::test::attnc("check " + kMods + "document.py");
  CHECK_THAT(document.out, Contains("document_id (line 13): clamped where outside: inside if Q_LEN <= KV_LEN"));
  CHECK_THAT(attnc::test::attnc("check " + kMods + "alibi.py -D CAUSAL=False").out, Contains("mask_mod: none"));
  Outcome plain = attnc::test::attnc("check --expr score");
  CHECK_THAT(plain.out, Contains("gathers     none"));
  CHECK(plain.out.find("lifted") == std::string::npos);
  Outcome masked = attnc::test::attnc("check --expr 'where(q_idx >= kv_idx, score, -inf)'");
  CHECK_THAT(masked.out,
             Contains("functions   score_mod, mask_mod") && Contains("score_mod masks: lifted into mask_mod"));
}

TEST_CASE("every library mod is checked and emitted as ast, ir and cu") {
  Folder folder;
  for (const std::string& path : libraryMods()) {
    INFO(path);
    Outcome check = attnc::test::attnc("check " + path);
    CHECK(check.exitCode == 0);
    Outcome ast = attnc::test::attnc("emit --stage ast " + path);
    CHECK(ast.exitCode == 0);
    CHECK_THAT(ast.out, Contains("_mod"));
    Outcome ir = attnc::test::attnc("emit --stage ir -o " + folder / "mod.ir " + path);
    CHECK(ir.exitCode == 0);
    CHECK(ir.out.empty());
    Outcome again = attnc::test::attnc("emit --stage ir " + folder / "mod.ir");
    CHECK(again.exitCode == 0);
    CHECK(again.out == readFile(folder / "mod.ir"));
    Outcome source = attnc::test::attnc("emit --stage cu --arch sm_80 --head-dim 64 " + path);
    CHECK(source.exitCode == 0);
    CHECK_THAT(source.out, Contains("__global__"));
  }
  CHECK(folder.files() == 1);
}

TEST_CASE("options of emit reach the source") {
  auto source = [](const std::string& options) {
    Outcome outcome = attnc::test::attnc("emit --stage cu " + kCausal + options);
    INFO(outcome.err);
    CHECK(outcome.exitCode == 0);
    return outcome.out;
  };
  std::string plain = source("--arch sm_80");
  for (const char* options : {"--arch sm_80 --dtype fp16", "--arch sm_80 --dtype fp32", "--arch sm_80 --head-dim 64",
                              "--arch sm_80 --head-dim-v 64", "--arch sm_80 --block-sparse",
                              "--arch sm_80 --kernel-family naive", "--arch sm_80 --kernel block-mask"}) {
    INFO(options);
    CHECK(source(options) != plain);
  }
  CHECK(source("--arch sm_80 --dtype bf16 --head-dim 128 --kernel forward --kernel-family auto") == plain);
  CHECK_THAT(attnc::test::attnc("emit --stage ir --expr 'kv_idx < KV_LEN - 7' --pin KV_LEN=4103").out,
             Contains("4096") || Contains("4095"));
  const std::string pinned = "emit --stage cu --arch sm_80 --expr 'kv_idx < KV_LEN - 7' ";
  CHECK_THAT(attnc::test::attnc(pinned + "--pin KV_LEN=4103").out, Contains("4096") || Contains("4095"));
}

TEST_CASE("an ast cannot be emitted from IR") {
  Folder folder;
  REQUIRE(attnc::test::attnc("emit --stage ir " + kCausal + "-o " + folder / "m.ir").exitCode == 0);
  Outcome outcome = attnc::test::attnc("emit --stage ast " + folder / "m.ir");
  CHECK(outcome.exitCode == 2);
  CHECK(outcome.out.empty());
}
