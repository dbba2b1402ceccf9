// `attnc run --backward` on a GPU: what it computes holds before its own --verify.
#include "gpu.h"

#include "api/mod_impl.h"
#include "reference/gradients.h"
#include "tools/attnc/gpu.h"
#include "tools/attnc/verify.h"

using namespace attnc;
using gputest::libraryMod;
using gputest::take;

TEST_CASE("a run with --backward holds before --verify", "[gpu][backward]") {
  ATTNC_NEED_GPU();
  // By bounds, by a block mask, with a derivative of its own, and a coarse one.
  // Their captures want gradients by head, by score, by diagonal, and as scalars.
  for (const char* name : {"alibi", "document", "softcap", "softcap_approx", "learned_bias", "relative_bias"})
    for (auto [dtype, deterministic] : {std::pair("bf16", false), {"fp16", true}, {"fp32", false}}) {
      const Mod mod = libraryMod(name);
      cli::RunOptions options;
      options.random = cli::RandomProblem{{2, 4, 2, 150, 190}, 64};
      options.dtype = dtype;
      options.backward = options.verify = true;
      options.gradients.deterministic = deterministic;
      const cli::HostOperands operands = take(cli::findOperands(mod, options));
      REQUIRE(operands.dLse);
      const cli::RunResult result = take(cli::runOnGpu(gputest::gpu()->context, mod, operands, options));
      const Mod derived = take(gradientMod(mod, take(options.gradients.wanted(mod))));
      const reference::GradientResult want =
          take(reference::gradients(derived.module(), operands.captures,
                                    {{operands.q.view(), operands.k.view(), operands.v.view(), {}, nullptr},
                                     operands.dOut.view(),
                                     operands.dLse->view()},
                                    captureGradients(derived)));
      const cli::Verification verification = cli::verify(mod, operands, options, result, want);
      INFO(name << " " << dtype << "\n" << result.summary << verification.text());
      CHECK(verification.holds());
      CHECK(verification.gradients.size() == 3 + operands.gradients.all().size());
      CHECK_THAT(result.summary, Catch::Contains("\nbackward    family "));
    }
}
