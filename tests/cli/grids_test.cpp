// Grids at the command line: what check says of them and of mods that take positions apart by hand, and what mask
// draws.
#include "command.h"

#include <catch2/catch.hpp>

#include <cstdlib>

using namespace attnc;
using namespace attnc::test;
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
             Contains("grid        HEIGHT x WIDTH: queries and keys\n") &&
                 Contains(", those that are qx % 2 modulo 2\n"));
  CHECK_THAT(
      checkMod("sparse_video"),
      Contains("grid        16 x 24 x 40 behind 128 tokens: queries and keys\n") &&
          Contains("            ky: where(temporal[h], max(qy - 3, 0), 0) to before where(temporal[h], qy + 4, 24)\n"
                   "            kx: where(temporal[h], max(qx - 3, 0), 0) to before where(temporal[h], qx + 4, 40)\n"
                   "            on the grid, a query sees all keys beside it; beside it, all keys on it and all beside "
                   "it\n"));
}

TEST_CASE("the problem without a shape is the grid that the mod declares") {
  const std::string mod = ATTNC_SOURCE_DIR "/dsl/mods/neighborhood2d.py ";
  const Outcome explained = test::attnc("explain --arch sm_90a " + mod);
  if (explained.exitCode != 3) { // else there is no NVRTC
    CHECK_THAT(explained.out, Contains("family grid for sm_90a") && Contains("Q_LEN 16384, KV_LEN 16384"));
    CHECK_THAT(test::attnc("explain --arch sm_90a --pin KV_LEN=4096 " + mod).out, Contains("Q_LEN 16384, KV_LEN 4096"));
  }
  CHECK_THAT(test::printed("mask " + mod), Contains("Q_LEN 16384 x KV_LEN 16384"));
  CHECK_THAT(test::printed("mask --shape 4096 " + mod), Contains("Q_LEN 4096 x KV_LEN 4096"));
  // Text before it, keys on another grid, extents that --set gives; extents that nobody knows.
  Folder folder;
  const auto lengths = [&](const std::string& grids, const std::string& options) {
    test::writeFile(folder / "mod.py", "HEIGHT: int\nWIDTH: int\n" + grids +
                                           "\ndef mask_mod(b, h, q_idx, kv_idx):\n"
                                           "  (qy, qx), (ky, kx) = fine.coords(q_idx), coarse.coords(kv_idx)\n"
                                           "  return (abs(qy - ky) < HEIGHT) & (abs(qx - kx) < WIDTH)\n");
    const Outcome outcome = test::attnc("mask " + options + " " + folder / "mod.py");
    const size_t at = outcome.out.find("Q_LEN");
    return at == std::string::npos ? outcome.err : outcome.out.substr(at, outcome.out.find(',', at) - at);
  };
  CHECK(lengths("fine, coarse = grid(64, 32, before=77), grid(32, 32)", "--set HEIGHT=3 --set WIDTH=3") ==
        "Q_LEN 2125 x KV_LEN 1024");
  CHECK(lengths("fine = coarse = grid(HEIGHT, WIDTH)", "--set HEIGHT=30 --set WIDTH=20") == "Q_LEN 600 x KV_LEN 600");
  CHECK_THAT(lengths("fine = coarse = grid(HEIGHT, WIDTH)", ""), Contains("4096"));
}

TEST_CASE("check says what is no box, and where conditions are left") {
  Folder folder;
  const auto of = [&](const std::string& mask) {
    const std::string path = folder / "mod.py";
    test::writeFile(path, "fine, coarse = grid(8, 8), grid(4, 4)\ndef mask_mod(b, h, q_idx, kv_idx):\n"
                          "  (qy, qx), (ky, kx) = fine.coords(q_idx), coarse.coords(kv_idx)\n  return " +
                              mask + "\n");
    return check(path);
  };
  CHECK_THAT(of("(qy // 2 >= ky) & ((qx // 2 == kx) | (ky == 0))"),
             Contains("grid        4 x 4: keys\n            8 x 8: queries\n"
                      "box         mask_mod lies in a box of keys per query, and asks for more\n"
                      "            ky: 0 to before (qy // 2) + 1\n            kx: all\n"));
  CHECK_THAT(of("(ky == 0) | (kx == qx)"),
             Contains("box         none: mask_mod is no box of keys; forward kernels go by lists of boxes\n"));
  CHECK_THAT(of("qy >= qx"), Contains("box         mask_mod does not ask for coordinates of kv_idx on one grid\n"));
}

TEST_CASE("explain counts the boxes that lists have") {
  const std::string explain = "explain " ATTNC_SOURCE_DIR "/dsl/mods/criss_cross.py --arch sm_90a --head-dim 64 ";
  const std::string text = test::attnc(explain + "-D HEIGHT=32 -D WIDTH=32 --shape 2,3,1,1024,1024").out;
  CHECK_THAT(text, Contains("kernel      family grid for sm_90a (forward_grid_sm90.cu)"));
  CHECK_THAT(text, Contains("tile from   the model: q1x4x16 kv1x8x8 split1\n"));
  CHECK_THAT(
      text,
      Contains(
          "KV loop     block mask of boxes: lists of the partial and the full boxes of keys, given at launch\n"
          "boxes       48 of 8 x 16 queries; 480 of 8 x 8 keys are listed, 10.0 for one of queries\n"
          "            of these 480 partial, 0 full; 9.8 % of the pairs computed live\n"
          "FLOPs       1.61 GFLOP dense, 1.01 GFLOP computed (62.5 %), 99.090 MFLOP of them of pairs that live\n"));
  const std::string json = test::attnc(explain + "-D HEIGHT=32 -D WIDTH=32 --shape 2,3,1,1024,1024 --json").out;
  CHECK_THAT(json, Contains("\"kvLoop\": \"boxMask\"") && Contains("\"full\": 0.0"));
  // Tokens outside the grid use blocks of consecutive tokens.
  CHECK_THAT(test::attnc(explain + "-D HEIGHT=32 -D WIDTH=32 --shape 2,3,1,1024,1025").out,
             Contains("family sm90 for sm_90a (forward_sm90.cu; a grid of 32 x 32 has 1024 tokens, KV_LEN is 1025)") &&
                 Contains("KV loop     block mask: lists of the partial and the full blocks, given at launch\n"));
}

TEST_CASE("mask lays the keys of a query out in space") {
  const std::string mods = ATTNC_SOURCE_DIR "/dsl/mods/";
  const std::string image = "mask " + mods + "neighborhood2d.py -D HEIGHT=5 -D WIDTH=6 -D 'WINDOW=(3, 3)' ";
  CHECK(test::attnc(image + "--shape 32 --query 2,3 --query 5").out ==
        "neighborhood2d.py\n"
        "\n"
        "query (2, 3): sees 9 of 30 keys, and 0 of 2 off the grid\n"
        "············\n"
        "····██████··\n"
        "····██▓▓██··\n"
        "····██████··\n"
        "············\n"
        "\n"
        "query 5: sees 9 of 30 keys, and 0 of 2 off the grid\n"
        "······████▓▓\n"
        "······██████\n"
        "······██████\n"
        "············\n"
        "············\n");
  // The same for a grid that attnc finds. Tokens after its last row follow the mod.
  const std::string found = test::attnc("mask --expr '(abs(q_idx // 6 % 5 - kv_idx // 6 % 5) <= 1) & "
                                        "(abs(q_idx % 6 - kv_idx % 6) <= 1)' --shape 36 --query 2,3 --query 1,0")
                                .out;
  CHECK_THAT(found, Contains("query (2, 3): sees 9 of 30 keys, and 0 of 6 off the grid\n"
                             "············\n"
                             "····██████··\n"
                             "····██▓▓██··\n"
                             "····██████··\n"
                             "············\n"
                             "\n"
                             "query (1, 0): sees 6 of 30 keys, and 2 of 6 off the grid\n"));
  CHECK_THAT(
      test::attnc("mask --expr '(q_idx // 6 == kv_idx // 6) & (kv_idx % 6 <= q_idx % 6)' --shape 12 --query 1,2").out,
      Contains("query (1, 2): sees 3 of 12 keys\n············\n████▓▓······\n"));
  CHECK_THAT(
      test::attnc("mask --expr '((q_idx - 2) // 6 == (kv_idx - 2) // 6) & ((kv_idx - 2) % 6 <= (q_idx - 2) % 6) | "
                  "(kv_idx == 0)' --shape 14 --query 1,2")
          .out,
      Contains("query (1, 2): sees 3 of 12 keys, and 1 of 2 off the grid\n············\n████▓▓······\n"));
  const std::string video = "mask " + mods +
                            "neighborhood3d.py --capture 'FRAMES: int' --set FRAMES=2 -D HEIGHT=1 -D WIDTH=3 "
                            "-D 'WINDOW=(1, 1, 2)' --shape 6 --query 1,0,1";
  CHECK_THAT(test::attnc(video).out, Contains("sees 2 of 6 keys\n0:\n······\n1:\n██▓▓··\n"));
  test::checkRefused(
      {{3, image + "--shape 16 --query 1,1", "the grid of keys ends at token 30, but KV_LEN is 16"},
       {3, image + "--shape 30 --query 5,0", "it lies in 0..29 by its position, or on its grid of 5 x 6"},
       {3, image + "--shape 30 --query 30", "there is no query 30"},
       {3, image + "--shape 30 --query 1,1,1", "there is no query 1,1,1"},
       {2, image + "--query 1,", "neither a position nor coordinates"},
       {2, image + "--query 1,2,3,4", "neither a position nor coordinates"},
       {2, image + "--query 1 --rows 0:4", "--rows"},
       {3, "mask " + mods + "causal.py --query 4", "image = grid(HEIGHT, WIDTH)"},
       {3, "mask " + mods + "neighborhood2d.py --shape 16384 --query 4", "-o FILE.svg draws it"},
       {3, image + "--shape 0,1,1,30,30 --query 4", "no queries"},
       {3, "mask " + mods + "sparse_video.py --shape 1,0,1,16000,16000 --query 5", "no queries"},
       {3, image + "--shape 1,1,1,0,30 --query 4", "no queries"}});
}

TEST_CASE("mask draws the box of queries around a query, and the keys that these see") {
  const std::string window = "mask " + std::string(ATTNC_SOURCE_DIR "/dsl/mods/neighborhood2d.py") +
                             " -D HEIGHT=8 -D WIDTH=8 -D 'WINDOW=(3, 3)' --shape 64 --query 2,2 ";
  // Queries (2..3, 2..3) see keys (1..4, 1..4): 16 keys, 9 of each query.
  const std::string text = test::printed(window + "--box 2x2");
  CHECK_THAT(text,
             Contains("query (2, 2): sees 9 of 64 keys\n2 x 2 queries read 4 x 4 keys; of these pairs 56.2 % live\n"));
  CHECK_THAT(text,
             Contains("\n················\n··██████░░······\n··██▓▓██░░······\n··██████░░······\n··░░░░░░░░······\n"));
  const std::string svg = test::printed(window + "--box 2x2 -o -");
  CHECK_THAT(svg, Contains("a key that another query of its box sees") && Contains("#9cc3ee"));
  CHECK_THAT(test::printed(window), !Contains("queries read"));
  CHECK(test::attnc(window + "--box 2x2x2").exitCode == 3);
  for (const char* wrong : {"0x2", "2x", "a", "32x32", "1x1x1x1"})
    CHECK(test::attnc(window + "--box " + wrong).exitCode == 2);
  CHECK(test::attnc("mask --expr 'q_idx >= kv_idx' --box 2x2").exitCode == 2);
}

TEST_CASE("the neighborhood in docs/grids.md is what attnc mask draws") {
  const std::string root = ATTNC_SOURCE_DIR "/", page = test::readFile(root + "docs/grids.md");
  const std::string start = "$ attnc mask dsl/mods/neighborhood2d.py ";
  const size_t at = page.find(start);
  REQUIRE(at != std::string::npos);
  const std::string arguments = page.substr(at + start.size(), page.find(" -o ", at) - at - start.size());
  const Outcome drawn = test::attnc("mask " + root + "dsl/mods/neighborhood2d.py " + arguments + " -o -");
  REQUIRE(drawn.exitCode == 0);
  if (std::getenv("ATTNC_UPDATE_GOLDEN")) test::writeFile(root + "docs/assets/neighborhood.svg", drawn.out);
  CHECK((drawn.out == test::readFile(root + "docs/assets/neighborhood.svg"))); // not printed
}

TEST_CASE("check tells which grid it finds in mods that take positions apart, and who serves it") {
  CHECK_THAT(check("--expr '(q_idx // 64 >= kv_idx // 64) & (q_idx % 64 >= kv_idx % 64)'"),
             Contains("grid        (KV_LEN / 64) x 64: keys\n"
                      "            (Q_LEN / 64) x 64: queries\n"
                      "            found in // and %: kernels by boxes (family grid) serve Q_LEN a multiple of 64, "
                      "KV_LEN a multiple of 64\n"
                      "box         mask_mod is a box of keys per query\n"
                      "            ky: 0 to before qy + 1\n"
                      "            kx: 0 to before qx + 1\n"));
  CHECK_THAT(check("--capture 'w: int' --expr '(q_idx // w // 8 == kv_idx // w // 8) & "
                   "(q_idx // w % 8 <= kv_idx // w % 8) & (q_idx % w // 4 == kv_idx % w // 4)'"),
             Contains("grid        (Q_LEN / (8 * w)) x 8 x w: queries\n"));
  CHECK_THAT(check("--expr '(q_idx // 8 % 6 == kv_idx // 8 % 6) & (q_idx % 8 >= kv_idx % 8)'"),
             Contains("grid        6 x 8: queries and keys\n") && Contains(" serve Q_LEN of 6 * 8, KV_LEN of 6 * 8\n"));
  const std::string behindText =
      "(abs((q_idx - t) // 8 - (kv_idx - t) // 8) <= 1) & (abs((q_idx - t) % 8 - (kv_idx - t) % 8) <= 2)";
  CHECK_THAT(
      check("--capture 't: int' --expr '" + behindText + " | (q_idx < t) | (kv_idx < t)'"),
      Contains("grid        ((Q_LEN - t) / 8) x 8 behind t tokens: queries\n"
               "            ((KV_LEN - t) / 8) x 8 behind t tokens: keys\n"
               "            found in // and %: kernels by boxes (family grid, on Hopper) serve Q_LEN t more than a "
               "multiple of 8, "
               "KV_LEN t more than a multiple of 8\n"
               "box         mask_mod is a box of keys per query\n") &&
          Contains("            on the grid, a query sees all keys beside it; beside it, all keys on it and all beside "
                   "it\n"));
  CHECK_THAT(check("--capture 't: int' --expr '" + behindText + " & (q_idx < t + 40) & (kv_idx - t < 40)'"),
             Contains("grid        5 x 8 behind t tokens: queries and keys\n") &&
                 Contains(" serve Q_LEN from t + 5 * 8 on, KV_LEN from t + 5 * 8 on\n"));
  CHECK_THAT(
      check("--expr '(abs(q_idx // 8 - kv_idx // 8) <= 1) & (abs(q_idx % 8 - kv_idx % 8) <= 2) | (q_idx >= 40) | "
            "(kv_idx >= 40)'"),
      Contains("(family grid, on Hopper) serve Q_LEN from 5 * 8 on, KV_LEN from 5 * 8 on\n"));
  CHECK_THAT(
      checkMod("axial"),
      Contains("            found in // and %; with a grid that is declared, forward kernels go by lists of boxes\n"
               "box         none: mask_mod is no box of keys\n"));
  CHECK_THAT(checkMod("causal"), !Contains("\ngrid "));
  CHECK_THAT(check("--expr 'q_idx // 64 >= kv_idx // 64'"), !Contains("grid"));
  CHECK_THAT(check("--expr '(q_idx >= kv_idx) & (kv_idx % 64 <= 8)'"), !Contains("grid"));
  // What it cannot find may be declared.
  CHECK_THAT(
      check("--expr '(q_idx // (KV_LEN // 8) == kv_idx // 9) & (q_idx % (KV_LEN // 8) >= 4)'"),
      Contains("grid        none is found, though positions are taken apart by // and % (KV_LEN // 8): of one number,\n"
               "            WIDTH: int, with image = grid(HEIGHT, WIDTH)"));
  CHECK_THAT(check("--expr '(q_idx // (h + 8) == kv_idx) & (q_idx % (h + 8) >= 4)'"), !Contains("grid"));
}

TEST_CASE("explain names the family of a grid that is found, or why it is passed over") {
  const std::string near = "explain --arch sm_90a --head-dim 64 --expr '(abs(q_idx // 64 - kv_idx // 64) <= 3) & "
                           "(abs(q_idx % 64 - kv_idx % 64) <= 3)' --shape 1,1,1,";
  const std::string served = test::attnc(near + "4096,4096").out, other = test::attnc(near + "4100,4096").out;
  CHECK_THAT(served, Contains("family grid for sm_90a") && Contains("KV loop     boxes of keys"));
  CHECK_THAT(other, Contains("family sm90 for sm_90a") &&
                        Contains("Q_LEN is 4100, no multiple of 64, by which the mod takes positions apart"));
}
