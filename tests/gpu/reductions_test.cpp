// Outputs that mods declare, on every family, against the fp64 reference.
#include "gpu.h"

#include "helpers/turns.h"

#include "cli/command.h"

using namespace attnc;
using namespace attnc::gputest;

namespace {

const std::string kOutputs = "def weight(prob, score, b, h, q_idx, kv_idx):\n  return prob\n"
                             "def entropy(prob, score, b, h, q_idx, kv_idx):\n"
                             "  return where(prob > 0, -prob * log(prob), 0.0)\n"
                             "def logit(prob, score, b, h, q_idx, kv_idx):\n  return score\n"
                             "def far(prob, score, b, h, q_idx, kv_idx):\n"
                             "  return prob * abs(q_idx - kv_idx) / 64 + h\n"
                             "rows: f32[B, H, Q_LEN] = reduce_sum(entropy)\n"
                             "max_logit: f32[B, H] = reduce_max(logit)\n"
                             "heads: f32[B, H] = reduce_max(far)\n"
                             "columns: f32[B, H, KV_LEN] = reduce_sum(weight)\n";
const std::string kOfColumns = "largest: f32[B, H, KV_LEN] = reduce_max(far)\n";
const std::string kCausal = "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx + 40 >= kv_idx\n";

/// Dense; by bounds; with all that a score may have, and lists, since the mask has no bounds.
const std::string kMods[] = {kOutputs, kCausal + kOutputs,
                             "slopes: f32[H]\n"
                             "def score_mod(score, b, h, q_idx, kv_idx):\n"
                             "  return where(kv_idx % 7 == 3, -inf, score + slopes[h] * (q_idx - kv_idx) / 64)\n"
                             "def mask_mod(b, h, q_idx, kv_idx):\n"
                             "  return ((q_idx // 128 + kv_idx // 128) % 3 != 1) & (q_idx % 8 != 5)\n"
                             "def sink_mod(b, h, q_idx):\n  return 0.25 * h\n" +
                                 kOutputs + kOfColumns};

} // namespace

GPU_TEST_CASE("outputs of mods hold before --verify, and two runs give equal bits", "[gpu]") {
  const test::Folder folder;
  const std::string mod = folder / "mod.py", first = folder / "first", second = folder / "second";
  const bool isHopper = gpu()->context.info().arch == "sm_90a";
  for (const std::string& text : kMods) {
    test::writeFile(mod, text);
    for (const char* problem : {"2,4,2,130,190,64", "1,6,2,700,900,128", "1,2,1,333,1030,256", "2,2,2,5,257,72"})
      for (const char* dtype : {"bf16", "fp16"})
        for (const char* family : {"sm90", "sm80", "naive"}) {
          if (family == std::string("sm90") && !isHopper) continue;
          if (!test::isCaseDue()) continue;
          const std::string arguments = "run " + mod + " --random " + problem + " --dtype " + dtype +
                                        " --kernel-family " + family + " --device cuda -o ";
          const test::Outcome outcome = test::attnc(arguments + first + " --verify");
          INFO("attnc " << arguments << "\n" << text << outcome.out << outcome.err);
          CHECK(outcome.exitCode == 0);
          CHECK(test::attnc(arguments + second).exitCode == 0);
          CHECK(test::readFile(first) == test::readFile(second));
        }
  }
}
