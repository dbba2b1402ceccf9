// Numbers by which decode kernels deal items of one length (EqualItems), against what CTAs must do together. Needs no
// GPU.
#include "tests/plan/planned.h"

#include "api/mod_impl.h"
#include "attnc/attnc.h"
#include "families/decode_plan.h"
#include "plan/assemble.h"

#include <catch2/catch.hpp>

#include <vector>

using namespace attnc;

namespace {

// Never read: plans only look at shapes and addresses.
void* const kSomewhere = reinterpret_cast<void*>(0x1000);

TensorView tensor(int64_t batch, int64_t heads, int64_t length) {
  return TensorView::contiguous(kSomewhere, DType::BF16, {batch, heads, length, 64});
}

bool isOwn(const Divisor& by) {
  const Divisor own = plan::divisorOf(by.divisor);
  return by.multiplier == own.multiplier && by.shift == own.shift;
}

} // namespace

TEST_CASE("CTAs of a decode kernel take each step of equal items once, and as many each", "[plan]") {
  const KernelOptions options{.kind = KernelKind::Decode, .arch = "sm_80", .headDim = 64, .headDimV = 64};
  const plan::Plan plan = test::planOf(Mod::identity(), options);
  const plan::Stage& stage = plan.stages.front();
  bool everInPieces = false, everInShares = false;
  for (int64_t batch : {1, 3, 32, 150})
    for (int64_t heads : {1, 2, 7})
      for (int64_t length : {0, 1, 257, 1024, 5000, 16384})
        for (int processors : {1, 78, 132}) {
          INFO(batch << " x " << heads << " x " << length << " on " << processors);
          const Operands operands{
              .q = tensor(batch, heads * 2, 3), .k = tensor(batch, heads, length), .v = tensor(batch, heads, length)};
          auto launch = take(plan::checkForward(operands, {.out = operands.q}, options));
          const plan::Device device{.multiprocessors = processors};
          const plan::WorkspaceLayout layout(plan.workspace, launch);
          auto params = take(stage.parameters(stage, launch, device, {layout, kSomewhere}));
          const EqualItems& equal = params.as<DecodeParams>().equal;
          REQUIRE((isOwn(equal.by_units) && isOwn(equal.by_each) && isOwn(equal.by_more)));
          REQUIRE(equal.by_more.divisor == equal.by_each.divisor + 1);
          const int items = int(batch * heads), ctas = int(ctasOf(stage, launch, device));
          const int steps = std::max(int((length + stage.config.blockN - 1) / stage.config.blockN), 1);
          const int units = equal.by_units.divisor, each = equal.by_each.divisor, rest = equal.rest;
          const int large = rest * equal.by_more.divisor; // steps of the larger shares
          (equal.in_pieces ? everInPieces : everInShares) = true;
          if (!equal.in_pieces) REQUIRE(units == steps);
          std::vector<int> taken(size_t(items * steps), 0);
          for (int cta = 0; cta < ctas; ++cta) {
            const auto first = [&](int i) { return equal.in_pieces ? i : i * each + std::min(i, rest); };
            const int end = std::min(first(cta + 1), units * items);
            if (!equal.in_pieces && cta < items * steps) CHECK(end - first(cta) >= each);
            for (int unit = first(cta); unit < end; ++unit) {
              const int item = unit / units, part = unit % units;
              const int from = equal.in_pieces ? steps * part / units : part;
              const int to = equal.in_pieces ? steps * (part + 1) / units : part + 1;
              for (int step = from; step < to; ++step) ++taken[size_t(item * steps + step)];
              if (equal.in_pieces) CHECK(to - from <= items * steps / std::min(ctas, items * steps) + kStepsOfEnd);
              if (!equal.in_pieces) REQUIRE(cta == (unit < large ? unit / (each + 1) : rest + (unit - large) / each));
            }
          }
          CHECK(std::count(taken.begin(), taken.end(), 1) == std::ptrdiff_t(taken.size()));
        }
  CHECK((everInPieces && everInShares));
}
