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
  // By bounds, by a block mask that the forward pass alone walks, with a derivative of its own, and a coarse one.
  for (const char* name : {"alibi", "document", "softcap", "softcap_approx"})
    for (const char* dtype : {"bf16", "fp16", "fp32"}) {
      const Mod mod = libraryMod(name);
      cli::RunOptions options;
      options.random = cli::RandomProblem{{2, 4, 2, 150, 190}, 64};
      options.dtype = dtype;
      options.backward = options.verify = true;
      const cli::HostOperands operands = take(cli::findOperands(mod, options));
      REQUIRE(operands.dLse);
      const cli::RunResult result = take(cli::runOnGpu(gputest::gpu()->context, mod, operands, options));
      const reference::GradientResult want =
          take(reference::gradients(take(gradientMod(mod)).module(), operands.captures,
                                    {{operands.q.view(), operands.k.view(), operands.v.view(), {}, nullptr},
                                     operands.dOut.view(),
                                     operands.dLse->view()}));
      const cli::Verification verification = cli::verify(mod, operands, options, result, want);
      INFO(name << " " << dtype << "\n" << result.summary << verification.text());
      CHECK(verification.holds());
      CHECK_THAT(result.summary, Catch::Contains("\nbackward    family "));
    }
}
