// `attnc mask`: maps against masks evaluated here, pictures against committed ones (ATTNC_UPDATE_GOLDEN=1 writes them
// anew: look at them), and what is refused.
#include "command.h"
#include "problem/safetensors.h"

#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

using namespace attnc;
using namespace attnc::test;
using Catch::Contains;

namespace {

const std::string kMods = ATTNC_SOURCE_DIR "/dsl/mods/";
const std::string kPictures = ATTNC_SOURCE_DIR "/tests/cli/pictures/";

std::string draw(const std::string& arguments) { return test::printed("mask " + arguments); }

/// Whether each cell lies in a path of this colour, row by row.
std::vector<std::vector<bool>> cellsOf(const std::string& svg, const std::string& colour, size_t rows, size_t columns) {
  std::vector<std::vector<bool>> cells(rows, std::vector<bool>(columns));
  const size_t path = svg.find("<path fill=\"" + colour + "\"");
  REQUIRE(path != std::string::npos);
  for (size_t at = svg.find(" d=\"", path) + 4; svg[at] == 'M'; at = svg.find_first_of("M\"", at + 1)) {
    unsigned x = 0, y = 0, width = 0, height = 0;
    REQUIRE(std::sscanf(svg.c_str() + at, "M%u %uh%uv%u", &x, &y, &width, &height) == 4);
    for (size_t row = y; row < y + height; ++row)
      for (size_t column = x; column < x + width; ++column) cells.at(row).at(column) = true;
  }
  return cells;
}

/// The rows of cells of a text map, without frame; a cell is its first character.
std::vector<std::vector<std::string>> cellsOf(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  const std::string bar = "│";
  for (size_t at = 0; (at = text.find(bar, at)) != std::string::npos;) {
    const size_t begin = at + bar.size(), end = text.find(bar, begin);
    std::vector<std::string> row;
    for (size_t i = begin; i < end;) {
      const size_t bytes = (text[i] & 0x80) == 0 ? 1 : (text[i] & 0xe0) == 0xc0 ? 2 : 3;
      const std::string character = text.substr(i, bytes);
      CHECK(text.substr(i + bytes, bytes) == character);
      row.push_back(character);
      i += 2 * bytes;
    }
    rows.push_back(row);
    at = end + bar.size();
  }
  return rows;
}

const std::vector<std::pair<const char*, std::string>> kDrawn{
    {"window", "--expr '(q_idx >= kv_idx) & (q_idx - kv_idx <= 200)' --shape 1000"},
    {"window_elements", "--expr '(q_idx >= kv_idx) & (q_idx - kv_idx <= 40)' --shape 150,200 --block 64"},
    {"heads", "--expr 'kv_idx <= q_idx + 64 * (h % 3)' --shape 2,6,2,256,256 --block 64"},
    {"groups", "--expr '(kv_idx // 1000 + q_idx // 3000) % 3 == 0' --shape 100000,20000"},
    {"decode", "--expr 'kv_idx >= 1000' --shape 1,4,4,1,8192"},
    {"crop", "--expr '(q_idx >= kv_idx) & (q_idx - kv_idx <= 200)' --shape 4096 --rows 896:1152 --columns 640:1000"},
    {"band_of_groups", "--expr 'q_idx - kv_idx < 40000' --shape 200000"},
    {"scores", "--expr 'torch.where(q_idx >= kv_idx, score - (q_idx - kv_idx) * 2.0 ** -h, -float(\"inf\"))' --scores "
               "--shape 1,4,2,40,56"},
    {"scores_up_and_down", "--expr 'score * (kv_idx - 8)' --scores --score 0.25 --shape 16"},
    {"curve", "--expr '20 * torch.tanh(score / 20)' --scores"},
};

} // namespace

TEST_CASE("mask draws blocks in the terminal: empty, partial and full, with the share of each") {
  const std::string text = draw(kMods + "sliding_window.py --set window=1000 --shape 1,16,16,4096,4096");
  CHECK_THAT(text, Contains("sliding_window.py: window = 1000\n") &&
                       Contains("32 x 32 blocks of 128 x 128; the same in all heads\n"));
  const auto cells = cellsOf(text);
  REQUIRE(cells.size() == 32);
  int full = 0, partial = 0;
  for (int64_t q = 0; q < 32; ++q) {
    REQUIRE(cells[size_t(q)].size() == 32);
    for (int64_t kv = 0; kv < 32; ++kv) {
      // Of q - kv in a block: from 128 (q - kv) - 127 to 128 (q - kv) + 127.
      const int64_t least = 128 * (q - kv) - 127, most = 128 * (q - kv) + 127;
      const char* expected = most < 0 || least > 1000 ? " " : least >= 0 && most <= 1000 ? "█" : "░";
      CHECK(cells[size_t(q)][size_t(kv)] == expected);
      full += expected == std::string("█");
      partial += expected == std::string("░");
    }
  }
  const auto share = [](const char* name, int count) {
    char line[80];
    std::snprintf(line, sizeof(line), "%-8s%12d  %5.1f %%", name, count, count * 100.0 / 1024);
    return std::string(line);
  };
  CHECK_THAT(text, Contains(share("full", full)) && Contains(share("partial", partial)) &&
                       Contains(share("empty", 1024 - full - partial)));
}

TEST_CASE("mask draws scores where they are few, and groups of blocks where these are many") {
  const auto scores = cellsOf(draw("--expr 'q_idx + 3 < kv_idx' --shape 1,1,1,20,30"));
  REQUIRE(scores.size() == 20);
  for (size_t q = 0; q < 20; ++q)
    for (size_t kv = 0; kv < 30; ++kv) CHECK(scores[q][kv] == (q + 3 < kv ? "▓" : "·"));
  // 64 x 64 blocks in 32 x 32 cells of 2 x 2.
  const std::string text = draw("--expr 'q_idx >= kv_idx' --shape 8192");
  const auto groups = cellsOf(text);
  REQUIRE(groups.size() == 32);
  for (size_t q = 0; q < 32; ++q)
    for (size_t kv = 0; kv < 32; ++kv)
      CHECK(groups[q][kv] == (q > kv ? "█" : q == kv ? "▒" : " ")); // one of four is full
  CHECK_THAT(text, Contains("a cell is 2 x 2 blocks"));
  // In between, scores share cells: 512 = 32 * 16.
  const auto cells = cellsOf(draw("--expr 'q_idx >= kv_idx' --shape 512"));
  REQUIRE(cells.size() == 32);
  for (size_t q = 0; q < 32; ++q)
    for (size_t kv = 0; kv < 32; ++kv)
      CHECK(cells[q][kv] == (q / 8 > kv / 8 ? "█" : q / 8 < kv / 8 ? " " : q > kv ? "▓" : q == kv ? "░" : "·"));
  const auto wide = cellsOf(test::shell("COLUMNS=200 $ATTNC mask --expr 'q_idx >= kv_idx' --shape 8192,8192").out);
  CHECK(wide.front().size() == 64);
}

TEST_CASE("in a mask of many blocks the cells of a band tell how many of their blocks are full") {
  const std::string text = draw("--expr '(q_idx >= kv_idx) & (q_idx - kv_idx <= 2000)' --shape 16384");
  const auto cells = cellsOf(text);
  REQUIRE(cells.size() == 32); // of 4 x 4 blocks
  const auto isLive = [](int64_t q, int64_t kv) { return q >= kv && q - kv <= 2000; };
  for (int64_t row = 0; row < 32; ++row)
    for (int64_t column = 0; column < 32; ++column) {
      int full = 0, live = 0;
      for (int64_t q = 4 * row; q < 4 * row + 4; ++q)
        for (int64_t kv = 4 * column; kv < 4 * column + 4; ++kv) {
          full += isLive(128 * q, 128 * kv + 127) && isLive(128 * q + 127, 128 * kv);
          live += q >= kv && 128 * (q - kv) - 127 <= 2000;
        }
      const char* expected = full == 16 ? "█" : full >= 8 ? "▓" : full > 0 ? "▒" : live > 0 ? "░" : " ";
      CHECK(cells[size_t(row)][size_t(column)] == expected);
    }
  CHECK_THAT(text, Contains("█") && Contains("▓▓ several blocks, at least half of them full; ▒▒ some of them full\n"));
}

TEST_CASE("the axes of a map are named where their numbers are, and a legend has the map's glyphs") {
  const std::string text = draw("--expr 'q_idx >= kv_idx' --shape 20");
  CHECK_THAT(text, Contains("         kv_idx →\n         0       4       8       12      16\n q_idx ↓┌──"));
  CHECK_THAT(text, Contains("by mask_mod: ▓▓ lives, ·· is masked\n") && !Contains("██ partial"));
  CHECK_THAT(draw("--expr 'q_idx >= kv_idx' --shape 512"), Contains("▓▓ all live, ░░ some, ·· none\n"));
  const std::string svg = draw("--expr 'q_idx >= kv_idx' --shape 256 -o -");
  CHECK_THAT(svg, Contains(">kv_idx</text>") && Contains("rotate(-90") && Contains("prefers-color-scheme:dark"));
}

TEST_CASE("a part of a mask says that it is one, and its counts are of the part") {
  const std::string corner = "--expr 'q_idx >= kv_idx' --shape 4096 --rows 256:512 --columns 128:384";
  const std::string text = draw(corner);
  CHECK_THAT(text, Contains("shown are rows 256 to 511 and columns 128 to 383, and only these are counted\n"));
  CHECK_THAT(text, Contains("full               3   75.0 %") && Contains("partial            1   25.0 %"));
  CHECK_THAT(draw(corner + " -o -"), Contains("3 of 4 blocks (75.0 %)") && Contains("shown are rows 256 to 511"));
  CHECK_THAT(draw("--expr 'q_idx >= kv_idx' --shape 4096"), !Contains("shown are"));
  // Chosen heads are counted by themselves.
  CHECK_THAT(draw("--expr 'kv_idx >= 128 * h' --shape 1,2,2,128,256 --head 1"),
             Contains("full               1   50.0 %"));
}

TEST_CASE("words lie inside the picture: the last numbers of an axis, and a legend below a narrow map") {
  for (const char* shape : {"1,1,1,1000,16000000", "4096,64"}) {
    INFO(shape);
    const std::string svg = draw("--expr 'q_idx >= kv_idx' -o - --shape " + std::string(shape));
    const int width = std::stoi(svg.substr(svg.find("viewBox=\"0 0 ") + 13));
    size_t words = 0;
    for (size_t at = 0; (at = svg.find("<text x=\"", at)) != std::string::npos; ++words) {
      at += 9;
      const int x = std::stoi(svg.substr(at));
      const std::string tag = svg.substr(at, svg.find("</text>", at) - at);
      const int length = 6 * int(tag.size() - tag.find('>') - 1);
      if (tag.find("rotate") != std::string::npos || tag.find("\"end\"") != std::string::npos) continue;
      CHECK(x + (tag.find("\"middle\"") != std::string::npos ? length / 2 : length) <= width);
    }
    CHECK(words > 10);
  }
}

TEST_CASE("mask --scores shows what score_mod makes of a score at each place") {
  const std::string text = draw("--expr 'score - (q_idx - kv_idx)' --scores --shape 8 ");
  CHECK_THAT(text, Contains("Q_LEN 8 x KV_LEN 8; every score was 0\n") && Contains("·· 0\n") &&
                       Contains("██ -7 to -") && Contains("@@ ") && Contains(" to 7\n"));
  const auto cells = cellsOf(text);
  REQUIRE(cells.size() == 8);
  for (size_t i = 0; i < 8; ++i) CHECK(cells[i][i] == "·");
  CHECK(cells[7][0] == "█");
  CHECK(cells[0][7] == "@");
  // Masked scores are blank. Heads that differ stand apart, with one scale.
  const std::string heads = draw("--expr 'torch.where(q_idx >= kv_idx, score + h * kv_idx, -float(\"inf\"))' --scores "
                                 "--shape 1,4,4,8,8 --score 1");
  CHECK_THAT(heads,
             Contains("\nhead 0\n") && Contains("\nhead 3\n") && Contains("blank: masked") && Contains(" to 22\n"));
  CHECK(cellsOf(heads)[0] == std::vector<std::string>{"·", " ", " ", " ", " ", " ", " ", " "});
  CHECK_THAT(draw("--expr 'score + kv_idx' --scores --shape 1,4,4,8,8"), Contains("; the same in all heads\n"));
  CHECK_THAT(draw("--expr 'score + kv_idx' --scores --shape 8 --rows 2:4"), Contains("shown are rows 2 to 3"));
  CHECK_THAT(draw("--expr 'score + kv_idx' --scores --shape 4096"), Contains("a cell shows one of 128 x 128 scores"));
}

TEST_CASE("mask --scores shows what prob_mod makes of a weight of 1, if there is no score_mod") {
  const std::string halves = "--expr 'lambda prob, b, h, q, k: torch.where(k < 4, prob / 2, prob)' --scores --shape 8 ";
  const std::string text = draw(halves);
  CHECK_THAT(text, Contains("; every weight was 1\n"));
  for (const auto& row : cellsOf(text))
    for (size_t kv = 0; kv < 8; ++kv) CHECK((row[kv] == row[0]) == (kv < 4));
  CHECK_THAT(draw(halves + "-o -"), Contains(">weight after prob_mod<") && Contains(">0.5<"));
  CHECK_THAT(draw(halves + "--score 0.25"), Contains("; every weight was 0.25\n"));
}

TEST_CASE("mask --scores draws a curve if score_mod reads only the score") {
  const std::string text = draw(kMods + "softcap.py --set cap=30 --scores");
  CHECK_THAT(text,
             Contains("softcap.py: cap = 30\n") && Contains("    100 │") && Contains("-50") && Contains(" score\n"));
  CHECK_THAT(draw(kMods + "softcap.py --set cap=30 --scores --score 8"), Contains("      8 │"));
  CHECK_THAT(draw(kMods + "softcap.py --set cap=30 --scores -o -"),
             Contains("<polyline") && Contains("stroke-dasharray"));
}

TEST_CASE("mask draws heads that differ, each kind once, and those that are asked for") {
  const std::string mod = "--expr 'kv_idx <= q_idx + 64 * (h % 3) + 0 * b' --shape 2,6,2,256,256 --block 64 ";
  const std::string text = draw(mod);
  CHECK_THAT(text, Contains("\nhead 0, 3\n") && Contains("\nhead 1, 4\n") && Contains("\nhead 2, 5\n") &&
                       Contains("the same in all batch entries\n"));
  const std::string one = draw(mod + "--head 4 --batch 1");
  CHECK_THAT(one, Contains("\nhead 4\n"));
  CHECK(cellsOf(one).size() == 32);
  CHECK_THAT(draw("--expr 'q_idx >= h * 64' --shape 1,9,9,1024,128"),
             Contains("5 more look different: --batch and --head choose"));
  CHECK_THAT(draw("--expr 'kv_idx > 64 * (b + h)' --shape 2,2,2,256,256"),
             Contains("batch 0, head 0\n") && Contains("batch 1, head 0; batch 0, head 1\n") &&
                 Contains("batch 1, head 1\n"));
}

TEST_CASE("mask reads captures of a file, and those alone that mask_mod needs") {
  Folder folder;
  cli::NamedTensors tensors;
  tensors["document_id"] = cli::HostTensor::make(DType::I64, {40}); // another width than declared
  for (size_t i = 20; i < 40; ++i) tensors["document_id"].bytes[8 * i] = 1;
  const std::string file = folder / "in.safetensors";
  REQUIRE(writeSafetensors(file, tensors));
  // The lengths are those of the capture.
  const std::string text = draw(kMods + "document.py --in " + file + " --rows 8:32 --columns :24");
  const auto cells = cellsOf(text);
  CHECK_THAT(text, Contains("Q_LEN 40 x KV_LEN 40"));
  REQUIRE(cells.size() == 24);
  for (size_t q = 8; q < 32; ++q)
    for (size_t kv = 0; kv < 24; ++kv) CHECK(cells[q - 8][kv] == (q >= kv && q / 20 == kv / 20 ? "▓" : "·"));
  CHECK_THAT(test::shell("$ATTNC mask " + kMods + "document.py --in - < " + file).out,
             Contains("Q_LEN 40 x KV_LEN 40"));
  CHECK_THAT(draw(kMods + "alibi.py"), Contains("alibi.py\n"));
  CHECK_THAT(draw(kMods + "noop.py"), Contains("noop.py (the mod masks nothing)\n"));
}

TEST_CASE("mask draws captures that nothing gives, and says which") {
  const auto note = [](const std::string& names) {
    return "attnc: note: drawn at random: " + names + "; --set or --in gives values\n";
  };
  for (const auto& [options, drawn] : {std::pair<std::string, std::string>("document.py --shape 64", "document_id"),
                                       {"sliding_window.py --shape 64", "window"},
                                       {"alibi.py --scores --shape 64", "slopes"}}) {
    const Outcome outcome = test::attnc("mask " + kMods + options);
    INFO(options << outcome.err);
    CHECK(outcome.exitCode == 0);
    CHECK(outcome.err == note(drawn));
    CHECK_FALSE(outcome.out.empty());
  }
}

TEST_CASE("a picture shows each score where there are few") {
  const auto lives = [](int64_t q, int64_t kv) { return q >= kv && q - kv <= 40; };
  const auto cells = cellsOf(
      draw("--expr '(q_idx >= kv_idx) & (q_idx - kv_idx <= 40)' --shape 150,200 --block 64 -o -"), "#4d8ad2", 150, 200);
  for (int64_t q = 0; q < 150; ++q)
    for (int64_t kv = 0; kv < 200; ++kv)
      if (cells[size_t(q)][size_t(kv)] != lives(q, kv)) FAIL("q " << q << ", kv " << kv);
}

TEST_CASE("pictures of masks are those that were looked at") {
  for (const auto& [name, arguments] : kDrawn) {
    INFO(name);
    const std::string svg = draw(arguments + " -o -");
    if (std::getenv("ATTNC_UPDATE_GOLDEN")) test::writeFile(kPictures + name + ".svg", svg);
    CHECK((svg == test::readFile(kPictures + name + ".svg")));
  }
}

TEST_CASE("a picture is written whole or not at all, and onto no input") {
  Folder folder;
  const std::string causal = "mask --expr 'q_idx >= kv_idx' --shape 256 ";
  CHECK(test::attnc(causal + "-o " + folder / "map.svg").exitCode == 0);
  CHECK(test::readFile(folder / "map.svg") == test::attnc(causal + "-o -").out);
  CHECK(test::attnc(causal + "-o " + folder / "none/map.svg").exitCode == 3);
  test::writeFile(folder / "mod.svg", "def mask_mod(b, h, q_idx, kv_idx):\n    return q_idx >= kv_idx\n");
  attnc::test::checkRefused("mask " + folder / "mod.svg" + " -o " + folder / "mod.svg", 2, "is the input");
  CHECK(folder.files() == 2);
}

TEST_CASE("mask refuses what it cannot draw, and says what to do") {
  const std::string causal = "mask --expr 'q_idx >= kv_idx' ";
  test::checkRefused({
      {3, causal + "--shape 4000000", "a map shows at most"},
      {2, causal + "--shape 1,2,3", "needed are the numbers B,H,HKV,Q_LEN,KV_LEN"},
      {2, causal + "--block 100", "sides are 64, 128 or 256"},
      {2, causal + "--head 16", "16 is not there: the problem has 16"},
      {2, causal + "--batch -1", "--batch"},
      {2, causal + "--rows 5", "no range FIRST:END"},
      {2, causal + "--rows 9:9", "no range FIRST:END"},
      {2, causal + "--columns 5000:", "lies behind the end, which is 4096"},
      {2, causal + "-o map.png", "does not end in .svg"},
      {3, causal + "--scores", "the mod has no score_mod"},
      {2, causal + "--score 3", "it is for --scores"},
      {2, causal + "--scores --block 64", "--block"},
      {3, "mask --expr 'score + h' --scores --shape 1,5000,5000,8,8", "choose some: --batch and --head"},
      {3, "mask --expr 'score + h' --scores --shape 0", "the problem has no scores"},
      {2, "mask " + kMods + "sliding_window.py --set winow=4", "captures window: int"},
      {2, "mask", "give a mod"},
      {1, "mask --expr 'q_idx >='", "error"},
  });
  for (const char* shape : {"0", "0,5", "5,0", "0,1,1,5,5"})
    CHECK(test::attnc(causal + "--shape " + shape).exitCode == 0);
}

TEST_CASE("the commands of the library's README draw pictures, and each mod stands there") {
  const std::string readme = test::readFile(kMods + "README.md");
  Folder folder;
  size_t drawn = 0;
  for (size_t at = 0; (at = readme.find("    attnc mask ", at)) != std::string::npos; ++drawn) {
    at += std::string("    attnc mask ").size();
    std::string line = readme.substr(at, readme.find('\n', at) - at);
    const std::string name = line.substr(0, line.find(".py"));
    INFO(line);
    if (const size_t in = line.find("--in "); in != std::string::npos) {
      const std::string file = line.substr(in + 5, line.find(' ', in + 5) - in - 5);
      const std::string of = file == "captures.safetensors" ? "" : file.substr(0, file.find('.'));
      const std::string path = folder / file;
      if (!std::filesystem::exists(path))
        REQUIRE(test::shell("python3 " + kMods + "pictures/captures.py " + of + " > " + path).exitCode == 0);
      line.replace(in + 5, file.size(), path);
    }
    const std::string svg = draw(kMods + line + " -o -");
    CHECK(svg.substr(0, 5) == "<svg ");
    if (name != "sliding_window") continue;
    const std::string shown = ATTNC_SOURCE_DIR "/docs/assets/sliding_window.svg"; // by that README
    if (std::getenv("ATTNC_UPDATE_GOLDEN")) test::writeFile(shown, svg);
    CHECK((svg == test::readFile(shown))); // not printed
  }
  CHECK(drawn >= 45);
  for (const auto& entry : std::filesystem::directory_iterator(kMods)) {
    if (entry.path().extension() != ".py") continue;
    const std::string name = entry.path().stem().string();
    INFO(name);
    CHECK(readme.find("### [" + name + "](" + name + ".py)\n") != std::string::npos);
  }
}
