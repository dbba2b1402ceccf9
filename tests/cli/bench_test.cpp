// `attnc bench` as far as it goes without a GPU: what it counts, what it draws, and what it refuses.
#include "command.h"
#include "show/roofline.h"

#include "attnc/explain.h"
#include "helpers/take.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <variant>
#include <vector>

using namespace attnc;
using namespace attnc::test;
using Catch::Contains;

namespace {

Work work(const char* text, const ProblemShape& problem, KernelOptions kernel = {}, const Captures& captures = {}) {
  const auto mod = take(Mod::parse(text));
  kernel.arch = "sm_90a";
  auto plan = take(Compiler().plan(mod, kernel));
  auto counted = take(countWork(plan, captures, problem));
  CHECK_FALSE(counted.isEstimate);
  return counted;
}

} // namespace

TEST_CASE("pairs are those that the mask lets live, element by element") {
  const ProblemShape problem{2, 6, 3, 100, 170};
  CHECK(work("score", problem).pairs == 12 * 100 * 170);
  CHECK(work("q_idx >= kv_idx", problem).pairs == 12 * (100 * 101 / 2));
  CHECK(work("(q_idx >= kv_idx) & (q_idx - kv_idx < 10)", problem).pairs == 12 * (10 * 11 / 2 + 90 * 10));
  CHECK(work("h == 2", problem).pairs == 2 * 100 * 170);
  CHECK(work("(q_idx + kv_idx) % 2 == 0", problem).pairs == 12 * 50 * 170);
  KernelOptions atLastKeys;
  atLastKeys.offsets = QueryOffsets::FromLengths;
  CHECK(work("q_idx >= kv_idx", problem, atLastKeys).pairs == 12 * (100 * 70 + 100 * 101 / 2));
  std::vector<int32_t> ids;
  for (int i = 0; i < 170; ++i) ids.push_back(i / 40);
  Captures captures;
  captures.set("ids", TensorView::contiguous(ids.data(), DType::I32, {170}));
  const char* document = "ids: i32[KV_LEN]\ndef mask_mod(b, h, q_idx, kv_idx):\n    return ids[q_idx] == ids[kv_idx]\n";
  CHECK(work(document, problem, {}, captures).pairs == 12 * (2 * 40 * 40 + 20 * 40));
}

TEST_CASE("of a kernel by boxes of a grid, pairs are those in boxes") {
  const char* text = "from attnc import grid\n"
                     "image = grid(24, 40)\n"
                     "def mask_mod(b, h, q_idx, kv_idx):\n"
                     "    (qy, qx), (ky, kx) = image.coords(q_idx), image.coords(kv_idx)\n"
                     "    return (abs(qy - ky) <= 3 + h) & (abs(qx - kx) <= 5)";
  const ProblemShape problem{2, 3, 3, 960, 960};
  const KernelOptions byBoxes{.family = Family::Grid, .arch = "sm_90a"};
  const double pairs = work(text, problem).pairs;
  CHECK(work(text, problem, byBoxes).pairs == pairs);
  KernelOptions backward = byBoxes;
  backward.kind = KernelKind::Backward;
  const std::string near = "def score_mod(score, b, h, q_idx, kv_idx):\n"
                           "    return score + 0.1 * (image.coords(kv_idx)[0] - image.coords(q_idx)[0])\n";
  CHECK(work((text + ("\n" + near)).c_str(), problem, backward).pairs == pairs);
  const std::string parity = text + std::string(" & ((qx + kx) % 2 == 0)"); // its boxes also hold dead pairs
  CHECK(work(parity.c_str(), problem, byBoxes).pairs == work(parity.c_str(), problem).pairs);
  CHECK(work(parity.c_str(), problem).pairs < pairs);
}

TEST_CASE("a problem beyond any budget is estimated") {
  const auto mod = take(Mod::parse("(q_idx * 7 + kv_idx * 3) % 5 < 2"));
  const ProblemShape problem{1, 1, 1, 1 << 20, 1 << 20};
  const auto plan = take(Compiler().plan(mod, {.arch = "sm_90a"}));
  auto counted = take(countWork(plan, {}, problem));
  CHECK(counted.isEstimate);
  CHECK(counted.pairs == Approx(0.4 * double(1 << 20) * double(1 << 20)).epsilon(0.05));
}

TEST_CASE("a decode kernel reads the columns that some query sees, others read all") {
  const ProblemShape problem{3, 8, 2, 4, 1000};
  KernelOptions decode{.kind = KernelKind::Decode};
  decode.offsets = QueryOffsets::FromLengths;
  CHECK(work("score", problem, decode).kvColumns == 6 * 1000);
  CHECK(work("(q_idx >= kv_idx) & (q_idx - kv_idx < 100)", problem, decode).kvColumns == 6 * 103);
  decode.kind = KernelKind::Forward;
  CHECK(work("(q_idx >= kv_idx) & (q_idx - kv_idx < 100)", problem, decode).kvColumns == 6 * 1000);
}

TEST_CASE("work is two products forward and five backward, and each tensor once") {
  const Work all = work("score", {2, 6, 3, 100, 170});
  const double pairs = 12 * 100 * 170, q = 12 * 100, kv = 6 * 170;
  KernelOptions kernel{.headDim = 64, .headDimV = 32};
  CHECK(all.flops(kernel) == 2 * pairs * (64 + 32));
  CHECK(all.bytes(kernel) == 2 * (q * (64 + 32) + kv * (64 + 32)));
  kernel.features = {Feature::Fp8Kv};
  CHECK(all.bytes(kernel) == 2 * q * (64 + 32) + kv * (64 + 32));
  kernel.features = {};
  kernel.dtype = DType::F32;
  CHECK(all.bytes(kernel) == 4 * (q * (64 + 32) + kv * (64 + 32)));
  kernel.kind = KernelKind::Backward;
  CHECK(all.flops(kernel) == 2 * pairs * (3 * 64 + 2 * 32)); // S, dQ, dK; dP, dV
  CHECK(all.bytes(kernel) == 8 * (q * (64 + 32) + kv * (64 + 32)) + 4 * q);
}

TEST_CASE("a roofline has a roof, and names what stands below it") {
  cli::Roofline roofline{"<mod> & device", 4e12, 1e15, {{"forward", 1000, 7e14}, {"decode", 2, 6e12}}};
  CHECK(cli::attainable(roofline, 10) == 4e13);
  CHECK(cli::attainable(roofline, 1000) == 1e15);
  const auto svg = [&] { return cli::svgOf(cli::rooflinePicture(roofline), roofline.title); };
  for (const char* part :
       {"&lt;mod&gt; &amp; device", "4000 GB/s", "1000 TFLOP/s", "forward: 700.0 TFLOP/s, 70 % of the roof",
        "decode: 6.0 TFLOP/s, 75 % of the roof", ">70 %<", ">75 %<", "ridge at 250 FLOP/byte"})
    CHECK_THAT(svg(), Contains(part));
  CHECK_THAT(svg(), !Contains("nan") && !Contains("inf"));
  const cli::Picture picture = cli::rooflinePicture(roofline);
  for (const auto& shape : picture.shapes)
    if (const auto* rect = std::get_if<cli::PictureRect>(&shape)) {
      CHECK((rect->width > 0 && rect->height > 0 && rect->x >= 0 && rect->y >= 0));
      CHECK((rect->x + rect->width <= picture.width && rect->y + rect->height <= picture.height));
    }
  roofline.flops = 0; // not known
  CHECK(cli::attainable(roofline, 1000) == 4e15);
  CHECK_THAT(svg(), Contains("4000 GB/s") && !Contains("nan"));
  roofline.points.clear();
  CHECK_THAT(svg(), Contains("</svg>"));
}

TEST_CASE("bench refuses what cannot be measured") {
  const Folder folder;
  const auto refused = [](const std::string& options, int exitCode, const std::string& part) {
    attnc::test::checkRefused("bench " + options, exitCode, part);
  };
  refused("--expr score --shape 1,2,3", 2, "B,H,HKV,Q_LEN,KV_LEN");
  refused("--expr score --shape 1,3,2,8,8", 2, "H must be a multiple of HKV");
  refused("--expr score --shape 1,2,2,0,8", 2, "leaves nothing to compute");
  refused("--expr score --shape 9999,99,99,99999,99999", 2, "more than 2^34 elements");
  refused("--expr score --shape 1,1,1,8,8 --head-dim 12", 2, "head dim '12'");
  refused("--expr score --shape 1,1,1,8,8 --kernel fordward", 2, "did you mean forward?");
  refused("--expr score --shape 1,1,1,8,8 --arch sm_91", 2, "'sm_91' is no architecture");
  refused("--expr score --shape 1,1,1,8,8 --gradients none", 2, "--gradients");
  refused("--expr score --shape 1,1,1,8,8 -o roofline.pdf", 2, "does not end in .svg");
  // Without a GPU, first that. The reason is that of `run --device cuda`.
  const Outcome without = attnc::test::attnc("run --expr score --random 1,1,1,8,8,16 --device cuda");
  if (without.exitCode == 0) {
    refused("--expr score", 2, "give either --in FILE or --shape");
    refused("--expr 'score +' --shape 1,1,1,8,8", 1, "error");
    return;
  }
  const std::string told = "bench needs a GPU: " + without.err.substr(std::string("attnc: error: ").size());
  for (const char* options : {"", "--expr score", "--expr 'score +' --shape 1,1,1,8,8"}) refused(options, 3, told);
  refused("--expr score --shape 1,1,1,8,8 -o " + (folder / "roofline.svg"), 3, told);
  CHECK(folder.files() == 0);
  const Outcome asJson = attnc::test::attnc("bench --expr score --shape 1,1,1,8,8 --json");
  CHECK(asJson.exitCode == 3);
  CHECK(nlohmann::json::parse(asJson.out)["ok"] == false);
}
