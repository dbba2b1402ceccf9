// What emit gives to those who want the kernel and not attnc: files that say how they are used, and texts on the way.
#include "command.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

using namespace attnc::test;
using Catch::Contains;

namespace {

const std::string kMods = ATTNC_SOURCE_DIR "/dsl/mods/";

Outcome emit(const std::string& arguments) { return attnc::test::attnc("emit " + arguments); }

std::string emitted(const std::string& arguments) {
  const Outcome outcome = emit(arguments);
  INFO(arguments << ": " << outcome.err);
  CHECK(outcome.exitCode == 0);
  return outcome.out;
}

} // namespace

TEST_CASE("a launcher of a tile of two heads wants an even number of them for each KV head") {
  const std::string ask = kMods + "causal.py --stage cu --launcher --tile 128x128x8-2heads --shape ";
  CHECK_THAT(emitted(ask + "1,8,2,256,256,128"), Contains("__cluster_dims__(2, 1, 1)"));
  CHECK_THAT(emitted(ask + "1,8,2,256,256,128"),
             Contains("2 * min(multiprocessors / 2, B * H / 2 * ceil(Q_LEN / 128))") &&
                 Contains("k 64 x 64, v 64 x 64"));
  const Outcome odd = emit(ask + "1,6,2,256,256,128");
  CHECK(odd.exitCode != 0);
  CHECK_THAT(odd.err, Contains("the tile wants 2 query heads, or a multiple, for each KV head"));
}

TEST_CASE("an emitted file begins with what it is, how it is compiled, and how it is launched") {
  struct {
    const char *options, *compile, *launch, *memory;
  } cases[] = {
      {"alibi.py --arch sm_80", "arch=compute_80,code=sm_80", "attnc_forward(const ForwardParams, const ModArgs)",
       "Workspace: none"},
      {"alibi.py --arch sm_89 --dtype e4m3", "sm_89", "attnc_forward(const Scaled<ForwardParams>, const ModArgs)",
       "Workspace: none"},
      {"alibi.py --arch sm_90a --dtype e4m3 --kv-lengths --page-size 16", "sm_90a",
       "attnc_forward(const Cached<Scaled<ForwardParamsSm90>>, const ModArgs)", "zero before the first launch"},
      {"alibi.py --arch sm_90a", "arch=compute_90a,code=sm_90a", "tensor maps, head dim x rows of a box: q 64 x 128",
       "zero before the first launch"},
      {"alibi.py --arch sm_90a --kernel decode --page-size 16", "sm_90a", "Cached<DecodeParamsSm90>", "row states"},
      {"alibi.py --arch sm_80 --kernel backward", "sm_80", "6. attnc_backward_captures_out",
       "zero before every launch"},
  };
  for (const auto& one : cases) {
    const std::string file = emitted(std::string("--stage cu ") + kMods + one.options);
    const std::string comment = file.substr(0, file.find("\n\n"));
    CHECK_THAT(comment, Contains("// alibi_") && Contains("kernel of the mod") && Contains("by attnc "));
    CHECK_THAT(comment, Contains("nvcc -std=c++20") && Contains(one.compile));
    CHECK_THAT(comment, Contains(one.launch) && Contains("dynamic shared memory") && Contains(one.memory));
    CHECK_THAT(comment, Contains("address of slopes"));
    CHECK(std::count(comment.begin(), comment.end(), '\n') < 60);
    CHECK_THAT(file, !Contains("Contract and callers"));
  }
  CHECK_THAT(emitted("--stage cu --arch sm_90a --launch 2 " + kMods + "latent_rope.py"),
             Contains("attnc_forward(const WithColumns<ForwardParamsSm90>, const ModArgs)") &&
                 Contains("k_columns 64 x"));
}

TEST_CASE("nvcc compiles emitted files without warnings") {
  if (shell("nvcc --version").exitCode != 0) {
    WARN("SKIPPED: there is no nvcc");
    return;
  }
  const Folder folder;
  for (const char* options :
       {"alibi.py --arch sm_80 --launcher --shape 1,8,8,300,300 --strides q=153600,64,512",
        "softcap.py --arch sm_90a --launcher --shape 512 --set cap=20",
        "document.py --arch sm_90a --kernel decode --page-size 64 --launcher --shape 2,8,2,1,1024",
        "sliding_window.py --arch sm_90a --kernel backward --block-sparse --launcher --shape 512 --set window=100",
        "causal.py --arch sm_90a --kernel block-mask --launcher --shape 512",
        "causal.py --arch sm_90a --ragged --launcher --shape 3,8,8,512,512",
        "learned_bias.py --arch sm_90a --kernel backward --gradients bias --launcher --shape 1,2,2,256,256",
        "softcap.py --arch sm_80 --kernel backward --head-dim 256", "neighborhood2d.py --arch sm_90a",
        "latent_rope.py --arch sm_90a", "latent_rope.py --arch sm_90a --head-dim 64 --kernel backward",
        "latent_rope.py --arch sm_80 --kernel backward",
        "latent_rope.py --arch sm_90a --launcher --shape 1,16,16,256,256 --set scale=0.1"}) {
    const std::string path = folder / "kernel.cu";
    emitted(std::string("--stage cu ") + kMods + options + " -o " + path);
    const std::string text = readFile(path), arch = text.find("sm_90a") < text.find('\n') ? "90a" : "80";
    const Outcome built =
        shell("nvcc -std=c++20 --expt-relaxed-constexpr -Xcompiler -Wall,-Wextra -gencode arch=compute_" + arch +
              ",code=compute_" + arch + " -c " + path + " -o " + folder / "kernel.o");
    INFO(options);
    CHECK(built.out + built.err == "");
    CHECK(built.exitCode == 0);
  }
}

TEST_CASE("the kernels of an emitted file have different C names") {
  const std::regex kernel("extern \"C\" __global__[^;{]* (attnc_\\w+)\\(const __grid_constant__");
  for (const auto& entry : std::filesystem::directory_iterator(kMods)) {
    if (entry.path().extension() != ".py") continue;
    for (const char* options : {"", " --kernel backward", " --kernel decode"}) {
      if (entry.path().stem() == "sigmoid" && options == std::string(" --kernel decode")) continue; // has none
      const std::string file = emitted("--stage cu --arch sm_90a --head-dim 64 " + entry.path().string() + options);
      std::set<std::string> names;
      size_t kernels = 0;
      for (std::sregex_iterator found(file.begin(), file.end(), kernel), end; found != end; ++found, ++kernels)
        names.insert(found->str(1));
      INFO(entry.path() << options);
      CHECK(kernels > 0);
      CHECK(names.size() == kernels);
    }
  }
}

TEST_CASE("kernels that differ under one name have the number of their launch behind it in a file of all") {
  const std::string all = "--stage cu --arch sm_90a " + kMods + "latent_rope.py";
  const std::string file = emitted(all), comment = file.substr(0, file.find("\n\n"));
  CHECK_THAT(comment, Contains("1. attnc_low_rank_launch1(const LowRankParams, const ModArgs)") &&
                          Contains("4. attnc_forward_launch4(const WithColumns<ForwardParamsSm90>, const ModArgs)") &&
                          Contains("Either launches 1 to 2 run, or 3 to 4") && Contains("is a power of two; else 128"));
  CHECK_THAT(emitted(all + " --launch 2"), Contains(" attnc_forward(const __grid_constant__"));
  CHECK_THAT(emitted(all + " --launch 2"), !Contains("Either launches"));
  CHECK_THAT(emitted("--stage cu --arch sm_90a --kernel backward " + kMods + "softcap.py"), !Contains("_launch1("));

  const auto told = [&](const std::string& options) {
    const Folder folder;
    return emitted(all + options + " --json -o " + folder / "kernel.cu");
  };
  CHECK_THAT(told(""), Contains("attnc_low_rank_launch3") && Contains("attnc_forward_launch4"));
  CHECK_THAT(told(" --launch 4"), Contains("\"attnc_forward\"") && !Contains("_launch"));
}

TEST_CASE("emit prints the generated text, of the whole kernel or of a launch") {
  const std::string text = emitted("--stage mod --arch sm_80 " + kMods + "alibi.py");
  CHECK_THAT(text, Contains("attnc_config.cuh") && Contains("kBlockM") && Contains("struct Mod {"));
  CHECK_THAT(text, !Contains("__global__"));
  const std::string backward = "--stage mod --arch sm_80 --kernel backward " + kMods + "alibi.py";
  CHECK(emitted(backward + " --launch 1").size() < emitted(backward).size());
  CHECK(emit(backward + " --launch 9").exitCode == 2);
}

TEST_CASE("emitted backward kernels take the gradients of the sums that are named") {
  const std::string sums = "--stage mod --arch sm_80 --kernel backward " + kMods + "column_sums.py";
  const std::string all = emitted(sums), named = emitted(sums + " --gradients column_sums"),
                    none = emitted(sums + " --gradients none");
  CHECK(all == named);
  CHECK_THAT(all, Contains("column_sums_gradient"));
  CHECK_THAT(none, !Contains("column_sums_gradient"));
}

TEST_CASE("emit prints the IR after passes") {
  const std::string all = emitted("--print-after all --arch sm_80 " + kMods + "alibi.py");
  CHECK(all.find("; after sequences") < all.find("; after levels"));
  CHECK(all.find("; after levels") < all.find("; after derive-scale"));
  const std::string one = emitted("--print-after derive-kv-bounds --arch sm_80 " + kMods + "alibi.py");
  CHECK_THAT(one, Contains("output kv_end") && !Contains("; after dce"));
  CHECK_THAT(emitted("--print-after derive-grid-box --arch sm_80 " + kMods + "neighborhood2d.py"),
             Contains("box_begin_0"));
  CHECK_THAT(emitted("--print-after simplify --kernel backward --arch sm_80 " + kMods + "alibi.py"),
             Contains("d_score"));
  const Outcome unknown = emit("--print-after level " + kMods + "alibi.py");
  CHECK(unknown.exitCode == 2);
  CHECK_THAT(unknown.err,
             Contains("there is no pass 'level'") && Contains("did you mean levels?") && Contains("lift-masks"));
}

TEST_CASE("the IR of a mod on a grid has the mod's kernels of boxes") {
  const Folder folder;
  const std::string path = folder / "mod.ir", mod = kMods + "neighborhood2d.py";
  writeFile(path, emitted("--stage ir " + mod));
  for (const std::string kind : {"forward", "backward"}) {
    const std::string ask = "--stage mod --arch sm_90a --kernel-family grid --kernel " + kind + " ";
    CHECK_THAT(emitted(ask + path), Contains("box_begin_0"));
    CHECK(emitted(ask + path) == emitted(ask + mod));
  }
}

TEST_CASE("emit disassembles with the tool that it finds") {
  const Folder folder;
  writeFile(folder / "nvdisasm", "#!/bin/sh\necho \"disassembled $1\"\n");
  shell("chmod +x " + folder / "nvdisasm");
  const std::string arguments = " emit --stage sass --arch sm_80 --head-dim 64 --expr score";
  const Outcome done = shell("PATH=" + folder / ":$PATH $ATTNC" + arguments);
  if (done.exitCode == 3 && done.err.find("nvrtc") != std::string::npos) return;
  CHECK(done.exitCode == 0);
  CHECK(done.out == "disassembled -c\n");
  writeFile(folder / "nvdisasm", "#!/bin/sh\nexit 1\n");
  const Outcome failed = shell("PATH=" + folder / ":$PATH $ATTNC" + arguments);
  CHECK(failed.exitCode == 3);
  CHECK_THAT(failed.err, Contains("nvdisasm fails"));
}
