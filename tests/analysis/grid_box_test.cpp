// The box of keys of a module, and what lies next to the grid.
#include "analysis/grid_box.h"
#include "helpers/traced.h"

using namespace attnc;
using namespace attnc::analysis;

namespace {

ir::Module onGrid(const std::string& mask) {
  return test::piped("first = grid(4, 6)\nsecond = grid(3, 8)\ndef mask_mod(b, h, q_idx, kv_idx):\n"
                     "  qy, qx = first.coords(q_idx)\n  ky, kx = first.coords(kv_idx)\n"
                     "  zy, zx = second.coords(kv_idx)\n  return " +
                         mask + "\n",
                     {.keepsGrids = true});
}

} // namespace

TEST_CASE("grids count as used where one of them is asked", "[grid-box]") {
  const auto used = [](const char* mask) { return gridsUsed(onGrid(mask)); };
  CHECK(used("abs(qy - ky) <= 1").queries);
  CHECK(used("abs(qy - ky) <= 1").keys);
  CHECK_FALSE(used("ky == 2").queries);
  CHECK(used("ky == 2").keys);
  CHECK_FALSE(used("(ky == 2) & (zx == 1)").keys); // of two grids
  CHECK_FALSE(used("q_idx >= kv_idx").keys);
}

TEST_CASE("outputs of a box are read by axis, and what is next to the grid comes back", "[grid-box]") {
  ir::Module module = onGrid("abs(qx - kx) <= 1");
  CHECK_FALSE(gridBox(module));
  CHECK(boxOutput("begin", 1) == "box_begin_1");
  const ir::ParamSet params = {ir::ParamKind::B, ir::ParamKind::H, ir::ParamKind::QIdx};
  const ir::Value begin = module.constInt(ir::Type::I32, 2), end = module.constInt(ir::Type::I32, 5);
  module.setOutput(boxOutput("begin", 1), params, begin);
  module.setOutput(boxOutput("end", 1), params, end);
  auto box = gridBox(module);
  REQUIRE(box);
  REQUIRE(box->axes.size() == 2);
  CHECK_FALSE(box->axes[0].begin);
  CHECK(box->axes[1].begin == begin);
  CHECK(box->axes[1].end == end);
  CHECK_FALSE(box->axes[1].step);
  CHECK(box->isMask());
  CHECK_FALSE(box->beside);

  const BesideGrid beside{Beside::None, Beside::Asks, Beside::All};
  setBeside(module, beside);
  box = gridBox(module);
  REQUIRE((box && box->beside));
  CHECK(box->beside->key == Beside::None);
  CHECK(box->beside->query == Beside::Asks);
  CHECK(box->beside->both == Beside::All);
  CHECK(box->beside->asks());
  module.setOutput("box_rest", ir::kMask.params, module.constBool(true));
  CHECK_FALSE(gridBox(module)->isMask());
}
