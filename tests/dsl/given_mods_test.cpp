// What a text gives to create_block_mask and flex_attention is its mod.
#include "dsl/tracing.h"

#include "ir/printer.h"

#include <catch2/catch.hpp>

#include <regex>

using namespace attnc;
using namespace attnc::testing;

namespace {

const std::string kHead =
    "from torch.nn.attention.flex_attention import flex_attention, create_block_mask, and_masks\n";
const std::string kMods = kHead + "def causal(b, h, q_idx, kv_idx): return q_idx >= kv_idx\n"
                                  "def window(size):\n"
                                  "  def near(b, h, q_idx, kv_idx): return q_idx - kv_idx <= size\n"
                                  "  return near\n"
                                  "def soft(score, b, h, q_idx, kv_idx): return 20 * torch.tanh(score / 20)\n";
const std::string kBoth = "and_masks(causal, window(128))";

std::string irOf(const std::string& text, const std::vector<std::string>& mods = {},
                 const std::vector<std::string>& captures = {}) {
  return std::regex_replace(ir::print(tracedWith(text, {.name = "script.py", .mods = mods, .captures = captures})),
                            std::regex(" ![0-9]+"), "");
}

/// "mask_mod and_masks(causal, near) 7: given to `create_block_mask` in line 7; causal 2"
std::vector<std::string> choices(const std::string& text) {
  dsl::Notes notes;
  auto module = dsl::trace(text, {.name = "script.py"}, &notes);
  if (!module) FAIL(module.error().message);
  std::vector<std::string> result;
  for (const ModChoice& choice : notes.choices) {
    std::string line =
        choice.kind + " " + choice.function.name + " " + std::to_string(choice.function.line) + ": " + choice.why;
    for (const ModFunction& other : choice.others) line += "; " + other.name + " " + std::to_string(other.line);
    result.push_back(line);
  }
  return result;
}

using Strings = std::vector<std::string>;

} // namespace

TEST_CASE("what create_block_mask and flex_attention are given is the mod", "[dsl][published]") {
  const std::string mask = irOf(kMods, {kBoth}), both = irOf(kMods, {kBoth, "soft"}), score = irOf(kMods, {"soft"});
  for (const std::string& made :
       Strings{// By position, by keyword, by a name; at module level.
               "create_block_mask(and_masks(causal, window(128)), None, None, 64, 64)\n",
               "m = and_masks(causal, window(128))\nbm = create_block_mask(mask_mod=m, B=None, H=None, Q_LEN=64, "
               "KV_LEN=64)\n",
               "create_block_mask(lambda b, h, q, k: causal(b, h, q, k) & window(128)(b, h, q, k), 1, 1, n(), n())\n",
               "bm = create_block_mask(functools.partial(and_masks(causal, window(128))), 1, 1, 64, 64, device=dev)\n",
               // In the main part of a script, in a function that it calls, in one that nobody calls, in a class.
               "if __name__ == '__main__':\n  create_block_mask(and_masks(causal, window(128)), 1, 1, 64, 64)\n",
               "def main():\n  q = load()\n  bm = create_block_mask(and_masks(causal, window(128)), 1, 1, 64, "
               "64)\nmain()\n",
               "def main(n, device='cuda', *rest, flag, **more):\n  x = torch.randn(n, device=device)\n"
               "  return create_block_mask(and_masks(causal, window(128)), 1, 1, n, n)\n",
               // Where a condition is not known, or a loop.
               "if torch.cuda.is_available():\n  create_block_mask(and_masks(causal, window(128)), 1, 1, 8, 8)\n",
               "def main(args):\n  if args.quick: return\n  for x in load(args):\n    with timer(x) as t:\n"
               "      create_block_mask(and_masks(causal, window(128)), 1, 1, 8, 8)\n",
               "class Net(nn.Module):\n  def __init__(self, dim):\n    super().__init__()\n    self.size = 128\n"
               "  def forward(self, x):\n    return create_block_mask(and_masks(causal, window(self.size)), 1, 1, 8, "
               "8)\n"}) {
    INFO(made);
    CHECK(irOf(kMods.substr(0, kMods.find("def soft")) + made) ==
          irOf(kMods.substr(0, kMods.find("def soft")), {kBoth}));
  }
  for (const std::string& called : Strings{
           "bm = create_block_mask(and_masks(causal, window(128)), 1, 1, 64, 64)\nout = flex_attention(q(), k, v, "
           "soft, bm)\n",
           "def f(q, k, v):\n  bm = create_block_mask(and_masks(causal, window(128)), 1, 1, len(q), 8)\n"
           "  return flex_attention(q, k, v, block_mask=bm, score_mod=soft, enable_gqa=True)\n",
           // Compiled or not, as the machine has it.
           "flex = torch.compile(flex_attention) if torch.cuda.is_available() else flex_attention\n"
           "def f(q, k, v):\n  return flex(q, k, v, soft, create_block_mask(and_masks(causal, window(128)), 1, 1, 8, "
           "8))\n",
           "if torch.cuda.is_available(): flex_attention = torch.compile(flex_attention)\n"
           "def f(q, k, v):\n  return flex_attention(q, k, v, soft, create_block_mask(and_masks(causal, "
           "window(128)), 1, 1, 8, 8))\n",
           "if torch.cuda.is_available(): flex = torch.compile(flex_attention)\nelse: flex = flex_attention\n"
           "def f(q, k, v):\n  return flex(q, k, v, soft, create_block_mask(and_masks(causal, window(128)), 1, 1, 8, "
           "8))\n",
           "flex = torch.compile(flex_attention, dynamic=False)\ndef f(q, k, v):\n"
           "  return flex(q, k, v, score_mod=soft, block_mask=create_block_mask(and_masks(causal, window(128)), 1, "
           "1, 8, 8))\n",
           "import torch.nn.attention.flex_attention as fa\ndef f(q, k, v):\n"
           "  return fa.flex_attention(q, k, v, soft, fa.create_block_mask(and_masks(causal, window(128)), 1, 1, "
           "8, 8))\n",
           "from torch.nn.attention.flex_attention import flex_attention as attend, create_block_mask as blocks\n"
           "run = functools.partial(attend, score_mod=soft)\n"
           "def g(q): return run(q, q, q, block_mask=blocks(and_masks(causal, window(128)), 1, 1, 8, 8))\n",
           "from attnc.torch import flex_attention as attend, create_block_mask as blocks, BlockMask\n"
           "def f(q, mask: BlockMask): return attend(q, q, q, soft, blocks(and_masks(causal, window(128)), 1, 1, "
           "8, 8))\n",
           // A mask that is made in one place and used in another.
           "bm = create_block_mask(and_masks(causal, window(128)), 1, 1, 64, 64)\n"
           "def f(q, block_mask): return flex_attention(q, q, q, soft, block_mask)\n"}) {
    INFO(called);
    CHECK(irOf(kMods + called) == both);
  }
  // None means: no mod, whatever the text defines.
  CHECK(irOf(kMods + "def f(q):\n  bm = create_block_mask(and_masks(causal, window(128)), 1, 1, 8, 8)\n"
                     "  return flex_attention(q, q, q, None, bm)\n") == mask);
  CHECK(irOf(kMods + "def f(q): return flex_attention(q, q, q, soft)\n") == score);
  // A call without a mod next to it only serves as a baseline.
  CHECK(irOf(kMods + "def f(q): return flex_attention(q, q, q) - flex_attention(q, q, q, soft)\n") == score);
  // A function that may be compiled or not.
  CHECK(irOf(kMods + "def main(args):\n  attend = flex_attention\n  if args.compile: attend = torch.compile(attend)\n"
                     "  return attend(args.q, args.q, args.q, soft)\n") == score);
  // What is imported is none by its shape.
  CHECK(irOf("from attn_gym.masks import causal_mask\ndef mine(b, h, q_idx, kv_idx): return q_idx > kv_idx\n") ==
        irOf("def mask_mod(b, h, q_idx, kv_idx): return q_idx > kv_idx\n"));
  // It comes before a name.
  CHECK(irOf(kMods + "mask_mod = causal\nbm = create_block_mask(and_masks(causal, window(128)), 1, 1, 8, 8)\n"
                     "x = flex_attention(q(), 1, 2, None, bm)\n") == mask);
}

TEST_CASE("a prob_mod is given, picked, or found by the name of its first parameter", "[dsl][published]") {
  const std::string text = kMods + "def half(prob, b, h, q_idx, kv_idx): return prob / 2\n"
                                   "def third(prob, b, h, q_idx, kv_idx): return prob / 3\n";
  const std::string all = irOf(text, {"causal", "soft", "half"});
  CHECK_THAT(all, Catch::Contains("output score(") && Catch::Contains("output mask(") &&
                      Catch::EndsWith("output prob_factor(b, h, q_idx, kv_idx) -> %5\n"));
  const std::string call = "bm = create_block_mask(causal, 1, 1, 8, 8)\n"
                           "def f(q, m): return flex_attention(q, q, q, soft, m, prob_mod=half)\n";
  CHECK(irOf(text + call) == all);
  const std::string alone = "def g(q): return flex_attention(q, q, q, prob_mod=half)\n";
  CHECK(irOf(text + alone) == irOf(text, {"half"}));
  CHECK(choices(text + alone) == Strings{"prob_mod half 7: given to `flex_attention` in line 9; third 8"});
  const std::string one = kHead + "def soft(score, b, h, q_idx, kv_idx): return 20 * torch.tanh(score / 20)\n"
                                  "def half(prob, b, h, q_idx, kv_idx): return prob / 2\n";
  CHECK(irOf(one) == irOf(text, {"soft", "half"}));
  CHECK(irOf(one, {"soft"}) == irOf(text, {"soft"}));
  CHECK(irOf("def make(by):\n  def half(prob, b, h, q, k): return prob / by\n  return half\nprob_mod = make(2)\n") ==
        irOf(text, {"half"}));
  // Another name of the first parameter is that of a score_mod, unless the function is bound to prob_mod.
  CHECK(irOf("def half(p, b, h, q, k): return p / 2\nprob_mod = half\n") == irOf(text, {"half"}));
  CHECK(irOf("def half(p, b, h, q, k): return p / 2\n") == irOf("score / 2"));
  CHECK(problems(text) == Strings{"ambiguous-mod at 8:5"});
}

TEST_CASE("the text says which functions were taken, and which were not", "[dsl][published]") {
  CHECK(choices(kMods + "bm = create_block_mask(" + kBoth + ", 1, 1, 8, 8)\n") ==
        Strings{"score_mod soft 6: it takes 5 arguments",
                "mask_mod and_masks(causal, near) 7: given to `create_block_mask` in line 7; causal 2"});
  CHECK(choices(kMods + "def f(q):\n  return flex_attention(q, q, q, lambda s, b, h, q, k: s)\n") ==
        Strings{"score_mod a lambda 8: given to `flex_attention` in line 8; soft 6"});
  CHECK(choices("def mask_mod(b, h, q_idx, kv_idx): return q_idx >= kv_idx\n") ==
        Strings{"mask_mod mask_mod 1: its name"});
  CHECK(choices("q_idx >= kv_idx").empty());
}

TEST_CASE("of several mods that a text gives, one has to be picked", "[dsl][published]") {
  const std::string two = kMods + "def a(q): return create_block_mask(causal, 1, 1, 8, 8)\n"
                                  "def b(q): return create_block_mask(window(4), 1, 1, 8, 8)\n";
  CHECK(problems(two) == Strings{"several-mods at 8:18"});
  CHECK(irOf(two, {"causal"}) == irOf(kMods, {"causal"}));
  CHECK(irOf(two + "mask_mod = causal\n") == irOf(kMods, {"causal"}));
  // The same one, twice; what a script runs, before what it does not call; a score here and a mask there are two mods.
  CHECK(choices(kMods + "for n in [1, 2]:\n  create_block_mask(causal, 1, 1, n, n)\n").size() == 2);
  CHECK(choices(kMods +
                "create_block_mask(causal, 1, 1, 8, 8)\ndef b(q): return create_block_mask(window(4), 1, 1, 8, 8)\n")
            .back() == "mask_mod causal 2: given to `create_block_mask` in line 7");
  CHECK(problems(kMods + "def f(q):\n  a = flex_attention(q, q, q, soft)\n"
                         "  return flex_attention(q, q, q, None, create_block_mask(causal, 1, 1, 8, 8))\n") ==
        Strings{"several-mods at 9:10"});
}

TEST_CASE("a mod that is given and cannot be evaluated is refused, not replaced", "[dsl][published]") {
  const std::string text = kMods + "def f(q):\n  ids = rare(q)\n"
                                   "  mask = and_masks(causal, lambda b, h, q_idx, kv_idx: ids[q_idx] == ids[kv_idx])\n"
                                   "  return create_block_mask(mask, 1, 1, 8, 8)\n";
  CHECK(problems(text) == Strings{"undefined-name at 8:9"});
  CHECK(irOf(text, {}, {"ids: i32[KV_LEN]"}).find("load i32 ids[%q_idx]") != std::string::npos);
  CHECK(problems(kMods + "create_block_mask(make(3), 1, 1, 8, 8)\n") == Strings{"undefined-name at 7:19"});
  // A number that only the caller knows.
  const std::string wrapped = kMods + "def f(q, size): return create_block_mask(window(size), 1, 1, 8, 8)\n";
  CHECK(problems(wrapped) == Strings{"callers-argument at 7:10"});
  CHECK(irOf(wrapped, {}, {"size: int"}).find("scalar size: ") != std::string::npos);
  // A wrapper of which nobody knows what it is given says nothing.
  CHECK(irOf(kHead + "def causal(b, h, q_idx, kv_idx): return q_idx >= kv_idx\n"
                     "def cached(mask_mod, n): return create_block_mask(mask_mod, 1, 1, n, n)\n") ==
        irOf("def mask_mod(b, h, q_idx, kv_idx): return q_idx >= kv_idx\n", {}));
}

TEST_CASE("a mod in another function is picked by its name", "[dsl][published]") {
  const std::string text = kMods + "def run(x, ids):\n"
                                   "  def same(b, h, q_idx, kv_idx): return ids[q_idx] == ids[kv_idx]\n"
                                   "  return create_block_mask(same, 1, 1, 8, 8)\n"
                                   "create_block_mask(window(4), 1, 1, 8, 8)\nflex_attention(x, x, x, soft)\n";
  const std::string expected = irOf("ids: i32[KV_LEN]\ndef mask_mod(b, h, q, k): return ids[q] == ids[k]\n");
  CHECK(irOf(text, {"same"}, {"ids: i32[KV_LEN]"}) == expected);
  CHECK(irOf(text, {"same", "soft"}, {"ids: i32[KV_LEN]"}) == irOf(text, {"soft", "same"}, {"ids: i32[KV_LEN]"}));
  // Two of a name.
  CHECK(problemsWith(kMods + "create_block_mask(window(4), 1, 1, 8, 8)\ncreate_block_mask(window(5), 1, 1, 8, 8)\n",
                     {.name = "script.py", .mods = {"near"}}) == Strings{"several-mods at 8:1"});
  CHECK(problemsWith(text, {.name = "script.py", .mods = {"other"}}) == Strings{"undefined-name at 1:1"});
}

TEST_CASE("a call among operands of which nothing is known tells of a mod", "[dsl][published]") {
  const std::string call = "flex_attention(q, q, q, lambda score, b, h, q_idx, kv_idx: score / 2)";
  for (const std::string& line : Strings{"return self.out(" + call + ".transpose(1, 2))", "return q + " + call,
                                         "q = self.norm(q) * 2 + self.out(" + call + ")"})
    CHECK(irOf(kHead + "class Layer(nn.Module):\n  def forward(self, q):\n    " + line + "\n") ==
          irOf("def score_mod(score, b, h, q_idx, kv_idx): return score / 2\n"));
}

TEST_CASE("what is tried out for a mod leaves the rest alone", "[dsl][published]") {
  // Neither its captures, its conditions, its warnings, nor its work count.
  const std::string text = kMods + "def run(n: int, m: int):\n  assert H > 1\n  x = [i for i in range(4000)]\n"
                                   "  while True: x = 1\n  flex_attention(n)\n";
  const ir::Module module = tracedWith(text, {.name = "script.py"});
  CHECK(module.scalars.empty());
  for (const ir::Output& output : module.outputs()) CHECK_FALSE(output.isCondition());
}
