// Grids at the command line: what check says of them, and what it says of mods that take positions apart by hand.
#include "command.h"

#include <catch2/catch.hpp>

using namespace attnc;
using attnc::test::Folder;
using attnc::test::Outcome;
using Catch::Contains;

namespace {

std::string check(const std::string& arguments) {
  Outcome outcome = test::attnc("check " + arguments);
  INFO("attnc check " << arguments << "\n" << outcome.err);
  REQUIRE(outcome.exitCode == 0);
  return outcome.out;
}

std::string checkMod(const std::string& name, const std::string& arguments = "") {
  return check(ATTNC_SOURCE_DIR "/dsl/mods/" + name + ".py " + arguments);
}

} // namespace

TEST_CASE("check says which box of keys a query on a grid sees") {
  CHECK_THAT(checkMod("neighborhood2d"),
             Contains("grid        128 x 128: queries and keys\n"
                      "box         mask_mod is a box of keys per query\n"
                      "            ky: min(max(qy - 6, 0), 115) to before min(max(qy - 6, 0), 115) + 13\n"
                      "            kx: min(max(qx - 6, 0), 115) to before min(max(qx - 6, 0), 115) + 13\n"));
  CHECK_THAT(checkMod("neighborhood2d", "--capture 'HEIGHT: int' --capture 'WIDTH: int' -D 'DILATION=(1, 2)'"),
             Contains("grid        HEIGHT x WIDTH: queries and keys\n") && Contains(", those that are qx % 2 modulo 2\n"));
  CHECK_THAT(checkMod("sparse_video"),
             Contains("grid        16 x 24 x 40 behind 128 tokens: queries and keys\n") &&
                 Contains("            ky: where(temporal[h], max(qy - 3, 0), 0) to before where(temporal[h], qy + 4, 24)\n"
                          "            kx: where(temporal[h], max(qx - 3, 0), 0) to before where(temporal[h], qx + 4, 40)\n"
                          "            on the grid, a query sees all keys beside it; beside it, all keys on it and all beside it\n"));
}

TEST_CASE("check says what is no box, and where conditions are left") {
  Folder folder;
  const auto of = [&](const std::string& mask) {
    const std::string path = folder / "mod.py";
    test::writeFile(path, "fine, coarse = grid(8, 8), grid(4, 4)\ndef mask_mod(b, h, q_idx, kv_idx):\n"
                          "  (qy, qx), (ky, kx) = fine.coords(q_idx), coarse.coords(kv_idx)\n  return " + mask + "\n");
    return check(path);
  };
  CHECK_THAT(of("(qy // 2 >= ky) & ((qx // 2 == kx) | (ky == 0))"),
             Contains("grid        4 x 4: keys\n            8 x 8: queries\n"
                      "box         mask_mod lies in a box of keys per query, and asks for more\n"
                      "            ky: 0 to before (qy // 2) + 1\n            kx: all\n"));
  CHECK_THAT(of("(ky == 0) | (kx == qx)"), Contains("box         none: mask_mod is no box of keys\n"));
  CHECK_THAT(of("qy >= qx"), Contains("box         mask_mod does not ask for coordinates of kv_idx on one grid\n"));
}

TEST_CASE("check tells mods that take positions apart how to declare the grid") {
  const std::string text = check("--expr '(q_idx // 64 >= kv_idx // 64) & (q_idx % 64 >= kv_idx % 64)'");
  CHECK_THAT(text, Contains("image = grid(HEIGHT, 64) and y, x = image.coords(q_idx) attnc sees boxes\n"));
  CHECK_THAT(checkMod("causal"), !Contains("grid"));
  CHECK_THAT(check("--expr 'q_idx // 64 >= kv_idx // 64'"), !Contains("grid"));
}
