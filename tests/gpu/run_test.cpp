// `attnc run` on a GPU: what it computes holds before its own --verify.
#include "gpu.h"

#include "cli/command.h"
#include "tools/attnc/commands/gpu.h"
#include "tools/attnc/commands/verify.h"
#include "tools/attnc/problem/oracle.h"

using namespace attnc;
using gputest::libraryMod;

GPU_TEST_CASE("a run with --backward holds before --verify", "[gpu][backward]") {
  // By bounds, by a block mask, with a derivative of its own, and a coarse one.
  // Their captures want gradients by head, by score, by diagonal, and as scalars. Some have sums with gradients.
  for (const char* name :
       {"alibi", "document", "softcap", "softcap_approx", "learned_bias", "relative_bias", "column_sums", "entropy"})
    for (auto [dtype, deterministic] : {std::pair("bf16", false), {"fp16", true}, {"fp32", false}}) {
      const Mod mod = libraryMod(name);
      cli::ProblemOptions options;
      options.random = cli::RandomProblem{{2, 4, 2, 150, 190}, 64};
      options.target.dtype = dtype;
      options.backward = options.verify = true;
      options.gradients.deterministic = deterministic;
      const cli::HostOperands operands = take(cli::findOperands(mod, options));
      REQUIRE(operands.dLse);
      const cli::RunResult result = take(cli::runOnGpu(gputest::gpu()->context, mod, operands, options));
      const reference::GradientResult want = take(cli::runReference(mod, operands, options));
      const cli::Verification verification = take(cli::verify(mod, operands, options, result, want));
      INFO(name << " " << dtype << "\n" << result.summary << verification.text());
      CHECK(verification.holds());
      CHECK(verification.gradients.size() == 3 + operands.gradients.all().size());
      CHECK_THAT(result.summary, Catch::Contains("\nbackward    family "));
    }
}

GPU_TEST_CASE("runs of large scores hold before --verify", "[gpu][backward]") {
  struct Run {
    const char *mod, *options;
    std::vector<const char*> large;
  };
  // By a bias of scores, and by rows of k under a mask, a distance, a function.
  const Run runs[] = {
      {"learned_bias",
       "--random 1,4,2,300,700,64",
       {"-1e9,all", "-1e9,rows", "1e9,tiles", "-3.4028235e38,half", "1e4,mixed"}},
      {"learned_bias",
       "--random 1,2,2,130,520,128 --dtype fp16",
       {"-1e9,tiles", "-1e9,all", "1e9,first-half", "-1e6,scattered"}},
      {"learned_bias", "--random 1,1,1,70,300,40 --dtype fp32", {"-1e9,rows", "1e9,all", "1e4,mixed"}},
      {"learned_bias", "--random 3,4,2,200,333,64 --ragged", {"-1e9,all", "-1e9,first-half", "1e9,rows"}},
      {"learned_bias",
       "--random 3,4,2,200,1040,64 --ragged --page-size 16",
       {"-1e9,all", "-1e9,first-half", "1e9,rows"}},
      {"causal", "--random 5,8,2,9,2048,128 --ragged --page-size 64 --kernel decode", {"-1e9,all", "1e9,tiles"}},
      {"learned_bias", "--random 2,8,2,3,5000,128 --kernel decode", {"-1e9,all", "-1e9,tiles", "1e9,half"}},
      {"learned_bias",
       "--random 2,8,2,1,4096,64 --kernel decode --page-size 16",
       {"-1e9,all", "-1e9,first-half", "1e4,mixed"}},
      {"learned_bias", "--random 1,4,2,150,190,64 --backward", {"-1e9,all", "-1e9,rows", "1e9,tiles", "1e4,mixed"}},
      {"learned_bias", "--random 1,2,1,150,190,64 --backward --dtype fp32", {"-1e9,all", "-1e9,half", "1e4,mixed"}},
      {"learned_bias", "--random 3,4,2,200,200,64 --backward --ragged", {"-1e9,all", "-1e9,first-half"}},
      {"causal", "--random 1,4,2,300,300,64", {"-1e9,first-half", "-1e9,all", "1e9,scattered"}},
      {"causal", "--random 3,4,2,200,200,128 --ragged", {"-1e9,all", "-1e9,tiles"}},
      {"strided", "--random 3,4,2,300,300,128 --ragged", {"-1e9,all", "-1e9,tiles"}}, // walks lists that it builds
      {"alibi", "--random 2,4,2,300,700,64", {"-1e9,half", "1e4,tiles"}},
      {"softcap", "--random 2,8,2,1,4096,128 --kernel decode --page-size 64", {"-1e9,first-half", "1e9,all"}},
      {"noop",
       "--random 1,2,1,150,190,64 --backward",
       {"-1e9,half", "-1e9,tiles"}}, // gradients are as long as rows that count
  };
  for (const Run& run : runs)
    for (const char* large : run.large) {
      const std::string arguments = std::string("run " ATTNC_SOURCE_DIR "/dsl/mods/") + run.mod + ".py " + run.options +
                                    " --large " + large + " --device cuda --verify";
      const test::Outcome outcome = test::attnc(arguments);
      INFO("attnc " << arguments << "\n" << outcome.out << outcome.err);
      CHECK(outcome.exitCode == 0);
      if (run.mod == std::string("learned_bias")) CHECK_THAT(outcome.out, !Catch::Contains("not compared"));
    }
}
