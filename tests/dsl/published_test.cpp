// Files as people publish them. What attnc cannot evaluate is refused only when the mod needs it. The mod is picked,
// and captures are declared, outside the text.
#include "dsl/tracing.h"

#include "ir/printer.h"

#include <catch2/catch.hpp>

#include <regex>

using namespace attnc;
using namespace attnc::testing;

namespace {

dsl::FrontendOptions with(std::vector<std::string> mods, std::vector<std::string> captures = {},
                          std::vector<CaptureInfo> available = {}) {
  return {
      .name = "mod.py", .mods = std::move(mods), .captures = std::move(captures), .available = std::move(available)};
}

/// The module as text, without the lines it comes from.
std::string irOf(const std::string& text, const dsl::FrontendOptions& options = {.name = "mod.py"}) {
  return std::regex_replace(ir::print(tracedWith(text, options)), std::regex(" ![0-9]+"), "");
}

std::vector<std::string> captures(const ir::Module& module) {
  std::vector<std::string> names;
  for (const auto& tensor : module.tensors) names.push_back(tensor.name);
  for (const auto& scalar : module.scalars) names.push_back(scalar.name);
  return names;
}

const std::string kCausal = "def causal(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n";

using Strings = std::vector<std::string>;

} // namespace

TEST_CASE("what the mod does not need is not refused", "[dsl][published]") {
  for (const std::string& rest : Strings{
           "import somewhere.far as far\nfrom . import sibling\nfrom .near import x as y\nfrom away import *\n",
           "try:\n  from rare import thing\nexcept ImportError:\n  thing = None\n",
           "logger = logging.getLogger(__name__)\nlogger.info(f\"{logger['x']!r:>{10}} {{\")\n",
           "class Net(nn.Module):\n  def __init__(self, n): super().__init__(); self.x = missing(n)\n",
           "with open('x') as f:\n  data = json.load(f)\n",
           "async def main():\n  async with a as b:\n    await b\n  async for x in y: yield x\n",
           "match command:\n  case {'a': [x, *_], **rest} if x > 1 | 2:\n    z = 1\n  case _: pass\n",
           "@decorator(1)\ndef other[T](*args: int, **kwargs: T) -> 'x':\n  yield from args\n  return (y := 1j)\n",
           "type Pair[T] = tuple[T, T]\nlambda_ = lambda *a, **k: {**k, 'a': {*a}}\nx = {k: v for k, v in lambda_()}\n",
           "big = 0xFFFFFFFFFFFFFFFFFFFF\ndel big\nassert unknown, 'no'\nraw = b'1' rb'2'\n",
           "for step in loader:\n  total += step\n  if step: break\nwhile not done(): pass\n",
           "x = [i for i in range(10 ** 6)]\nwhile True:\n  x = 1\n", "if __name__ == '__main__':\n  main(\n  )\n"}) {
    INFO(rest);
    CHECK(irOf(rest + kCausal) == irOf(kCausal));
    CHECK(irOf(kCausal + rest) == irOf(kCausal));
  }
}

TEST_CASE("what cannot be evaluated is an error where it came from, once the mod needs it", "[dsl][published]") {
  const std::string use = "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= x\n";
  CHECK(problems("from rare import x\n" + use) == Strings{"unknown-import at 1:6"});
  CHECK(problems("x = rare.load(3)\n" + use) == Strings{"undefined-object at 1:5"});
  CHECK(problems("y = torch.bincount(1)\nx = (y, 1)[0]\n" + use) == Strings{"computed-name at 2:1"});
  CHECK(problems("with rare as x: pass\n" + use) == Strings{"undefined-name at 1:6"});
  CHECK(problems("def f(y): return y + 1\nx = f(rare)\n" + use) == Strings{"undefined-name at 2:7"});
  CHECK(problems("class A:\n  def __init__(self): self.y = rare\nx = A().y\n" + use) ==
        Strings{"undefined-name at 2:32"});
  CHECK(problems("x = {'a': rare}['a']\n" + use) == Strings{"undefined-name at 1:11"});
}

TEST_CASE("what a part that is not evaluated would change is not known after it", "[dsl][published]") {
  const auto refused = [](const std::string& text) {
    return problems(text + "def mask_mod(b, h, q_idx, kv_idx):\n  return q_idx >= x[0]\n") ==
           Strings{"undefined-constant at 2:4"};
  };
  CHECK(refused("x = [1]\nif rare:\n  x = [2]\n"));
  CHECK(refused("x = [1]\nif rare:\n  x[0] = 2\n"));
  CHECK(refused("x = [1]\nif rare:\n  x.append(2)\n"));
  CHECK(refused("y = x = [1]\nif rare: y.insert(0, 2)\n"));
  CHECK(refused("x = [1]\nif rare: x += [2]\n"));
  CHECK(refused("x = [1]\nif rare: del x[0]\n"));
  CHECK(refused("x = torch.tensor([1])\nif rare: x.zero_()\n"));
  CHECK(problems("x = [1]\nfor i in rare:\n  x.extend([i])\nq_idx >= x[0]") == Strings{"undefined-constant at 2:10"});
  CHECK(problems("x = [1]\nwhile rare:\n  x.pop()\nq_idx >= x[0]") == Strings{"undefined-constant at 2:7"});
  CHECK(problems("def f():\n  if rare: return 1\n  return 2\nq_idx >= f()") == Strings{"undefined-constant at 2:6"});
  CHECK(problems("x = 1\nfor i in (1, 2):\n  if rare: break\n  x = i\nq_idx >= x") ==
        Strings{"undefined-constant at 3:6"});
  CHECK(problems("x = torch.tensor([1, 2])\nx[0] = 3\nq_idx >= x[0]") == Strings{"computed-name at 2:1"});
  CHECK(problems("t: i32[H]\nu = t\nt[0] = 3\nq_idx >= u[h]") == Strings{"read-only at 3:1"});
  CHECK(problems("class A:\n  def __init__(self):\n    self.x = torch.tensor([1])\n    self.x[0] = 2\n"
                 "a = A()\nq_idx >= a.x[0]") == Strings{"read-only at 4:5"});
}

TEST_CASE("what the text raises is an error, unless it is caught", "[dsl][published]") {
  CHECK(problems("raise ValueError('x')\n" + kCausal) == Strings{"raised at 1:1"});
  CHECK(problems("if 1 > 0:\n  assert False\n" + kCausal) == Strings{"assertion-fails at 2:3"});
  // About scores it is refused; about the launch it is a condition, or taken to hold.
  for (const char* condition : {"score > 0", "q_idx >= kv_idx", "w[h] > 0"})
    CHECK(problems("w: f32[H]\ndef score_mod(score, b, h, q_idx, kv_idx):\n    assert " + std::string(condition) +
                   "\n    return score * w[h]") == Strings{"traced-assertion at 3:5"});
  for (const char* condition : {"KV_LEN % 128 == 0", "w[0] > 0", "w.shape[0] > 3"})
    CHECK(problems("w: f32[H]\ndef score_mod(score, b, h, q_idx, kv_idx):\n    assert " + std::string(condition) +
                   "\n    return score * w[h]") == Strings{});
  CHECK(problems("def f(n):\n  if n > 2: raise ValueError\n  return n\nq_idx >= f(3)") == Strings{"raised at 2:13"});
  CHECK(irOf("try:\n  raise ValueError('x')\nexcept ValueError as e:\n  x = 2\nelse:\n  x = 3\nq_idx >= x") ==
        irOf("q_idx >= 2"));
  CHECK(irOf("try:\n  x = 1\nexcept ValueError:\n  x = 2\nelse:\n  x = 3\nfinally:\n  y = x\nq_idx >= y") ==
        irOf("q_idx >= 3"));
}

namespace {

/// "words at line" of each condition of a text, in order.
Strings conditions(const std::string& text) {
  Strings result;
  const ir::Module module = tracedWith(text, {.name = "mod.py"});
  for (const ir::Output& output : module.outputs())
    if (output.isCondition()) result.push_back(output.words + " at " + std::to_string(output.line));
  return result;
}

const std::string kTensor = "w: f32[N]\nn: int\np: float\n";

} // namespace

TEST_CASE("what a text asserts of extents and scalars is a condition of the launch", "[dsl][published]") {
  const auto of = [](const std::string& statements) { return conditions(kTensor + statements + "\nscore + w[h]"); };
  CHECK(of("assert w.shape[0] == B + 1") == Strings{"`assert w.shape[0] == B + 1` fails at 4"});
  CHECK(of("assert w.shape == (H,), 'one weight a head'") == Strings{"one weight a head at 4"});
  CHECK(of("assert w.shape != (H, 2)") == Strings{});
  CHECK(of("assert 0 < n <= KV_LEN\nassert 0.0 <= p < 1.0, f'p is {p}'").size() == 2);
  CHECK(of("if len(w) < KV_LEN:\n  msg = 'short'\n  raise ValueError(msg)") ==
        Strings{"the mod raises an exception, for `len(w) < KV_LEN` at 6"});
  CHECK(of("if len(w) < KV_LEN: raise ValueError('short')\nelif n > 4: raise ValueError('n')\nelse: x = 2") ==
        Strings{"short at 4", "n at 5"});
  CHECK(of("if len(w) == H:\n  x = 3\nelse:\n  raise ValueError('heads')") == Strings{"heads at 7"});
  CHECK(of("assert H > 1, 'a'\nassert H > 1, 'b'") == Strings{"a at 4"});
  CHECK(of("for i in range(65): assert H > 1, 'a'") == Strings{"a at 4"});
  std::string eleven;
  for (int i = 0; i < 11; ++i) eleven += "assert H != " + std::to_string(i) + ", 'not " + std::to_string(i) + "'\n";
  CHECK(of(eleven).back() == "not 10 at 14"); // in the order of the text
  // In a function that the mod, or what makes it, calls; in a mod.
  CHECK(conditions("def make(w):\n  assert len(w) == H\n  def f(b, h, q_idx, kv_idx):\n    assert KV_LEN % 128 == 0\n"
                   "    return w[h] > 0\n  return f\nw: f32[N]\nmask_mod = make(w)") ==
        Strings{"`assert len(w) == H` fails at 2", "`assert KV_LEN % 128 == 0` fails at 4"});
  // Neither what is caught, what tensors hold, what is known, nor what belongs to a statement that is put off.
  CHECK(of("try:\n  assert len(w) == H\nexcept AssertionError:\n  pass") == Strings{});
  CHECK(of("assert w[0] > 0\nassert 2 > 1") == Strings{});
  CHECK(of("def f():\n  assert len(w) == H\n  return 1\nx = f() + unknown()") == Strings{});
  CHECK(of("if len(w) == H: x = 2") == Strings{});
}

TEST_CASE("a table that is too large gives way to the capture of its name", "[dsl][published]") {
  const std::string text = "def make():\n  t = torch.arange(65)\n"
                           "  def f(score, b, h, q_idx, kv_idx): return score + t[h] + t[3]\n  return f\n";
  CHECK(problemsWith(text, with({"make"})) == Strings{"table-too-large at 3:53"});
  const ir::Module module = tracedWith("t: f32[H]\n" + text, with({"make"}));
  CHECK(captures(module) == Strings{"t"});
  CHECK_THAT(ir::print(module), Catch::Contains("load f32 t[%h]") && Catch::Contains("3.0"));
}

TEST_CASE("math.prod multiplies", "[dsl][published]") {
  CHECK(irOf("q_idx >= math.prod((2, 3)) + math.prod([], start=4)") == irOf("q_idx >= 10"));
}

TEST_CASE("an expression beside the text picks the mod", "[dsl][published]") {
  const std::string factory = "def make(offsets, inner):\n"
                              "  def masked(b, h, q_idx, kv_idx):\n"
                              "    return inner(b, h, q_idx - offsets[b], kv_idx)\n"
                              "  return masked\n" +
                              kCausal;
  const ir::Module module = tracedWith(factory, with({"make(offsets, causal)"}, {"offsets: i32[B]"}));
  CHECK(captures(module) == Strings{"offsets"});
  CHECK(module.output(ir::kMask));
  CHECK_FALSE(module.output(ir::kScore));
  CHECK(irOf(factory, with({"causal"})) == irOf(kCausal));
  CHECK(irOf(kCausal, with({"lambda s, b, h, q, k: s / 2", "causal"})) ==
        irOf(kCausal + "def score_mod(s, b, h, q, k): return s / 2\nmask_mod = causal\n"));
  CHECK(irOf(kCausal, with({"(lambda s, b, h, q, k: s / 2), causal"})) ==
        irOf(kCausal, with({"lambda s, b, h, q, k: s / 2", "causal"})));
  CHECK(problemsWith(factory, with({"make(rare, causal)"})) == Strings{"undefined-name at 1:6"});
}

TEST_CASE("a declaration wins over what cannot be evaluated", "[dsl][published]") {
  const std::string text = "def make(offsets):\n"
                           "  ids = torch.repeat_interleave(offsets)\n"
                           "  def same(b, h, q_idx, kv_idx):\n"
                           "    return ids[q_idx] == ids[kv_idx]\n"
                           "  return same\n";
  CHECK(problemsWith(text, with({"make(offsets)"}, {"offsets: i32[N]"})) == Strings{"unknown-member at 2:9"});
  CHECK(captures(tracedWith(text, with({"make(offsets)"}, {"offsets: i32[N]; ids: i32[KV_LEN]"}))) ==
        Strings{"offsets", "ids"});
  CHECK(captures(traced("ids: i32[KV_LEN]\nids = rare()\n" + text + "mask_mod = make(0)\n")) == Strings{"ids"});
  CHECK(captures(traced("ids: i32[KV_LEN] = rare()\nids[kv_idx] > 1")) == Strings{"ids"});
  CHECK(captures(tracedWith("class A:\n  def __init__(self, c): self.cap = c.cap\n  def mod(self, s, b, h, q, k):\n"
                            "    return s * self.cap\n",
                            with({"A(config).mod"}, {"cap: float"}))) == Strings{"cap"});
  // The same for what was built and then filled in a way that cannot be followed; but not for a capture that the text
  // changes.
  const std::string filled = "def make(n):\n"
                             "  ends = torch.zeros(n)\n"
                             "  for i in torch.arange(0, n, 2):\n"
                             "    ends[i:i + 2] = i\n"
                             "  return create_block_mask(lambda b, h, q, k: k < ends[q], None, None, n, n)\n";
  CHECK(problemsWith(filled, with({"make(6)"})) == Strings{"computed-name at 4:5"});
  CHECK(captures(tracedWith(filled, with({"make(6)"}, {"ends: i64[KV_LEN]"}))) == Strings{"ends"});
  CHECK(problemsWith("def make(t):\n  t[0] = 1\n  return lambda b, h, q, k: k < t[q]\n",
                     with({"make(t)"}, {"t: i32[N]"})) == Strings{"read-only at 2:3"});
  // One that can be evaluated is another matter.
  CHECK(problems("n: int\nn = 3\nq_idx > n") == Strings{"redeclared at 2:1"});
  CHECK(captures(tracedWith("n = 3\nq_idx > n", with({}, {"n: int"}))) == Strings{"n"});
}

TEST_CASE("a declaration given with the text wins over every value outside of mods", "[dsl][published]") {
  const auto of = [](const std::string& text) { return irOf(text, with({}, {"n: i32[KV_LEN]"})); };
  const std::string mod = "def mask_mod(b, h, q_idx, kv_idx):\n  return n[q_idx] == n[kv_idx]\n", wanted = of(mod);
  CHECK_THAT(wanted, Catch::Contains("load i32 n[%kv_idx]"));
  CHECK(of("n = torch.zeros(8)\n" + mod) == wanted);
  CHECK(of("n = torch.zeros(8)\nn[3:] = 1\n" + mod) == wanted);
  CHECK(of("def make():\n  n = torch.zeros(8)\n  return lambda b, h, q, k: n[q] == n[k]\nmask_mod = make()\n") ==
        wanted);
  CHECK_THAT(of("def mask_mod(b, h, q_idx, kv_idx):\n  n = 3\n  return q_idx > n\n"), !Catch::Contains("load"));
}

TEST_CASE("annotations of a factory's parameters declare", "[dsl][published]") {
  const std::string text = "def make(offsets: i32[N], window: int, other=2):\n"
                           "  def near(b, h, q_idx, kv_idx):\n"
                           "    return (q_idx - kv_idx <= window * other) & (offsets[b] > 1)\n"
                           "  return near\n";
  CHECK(captures(tracedWith(text, with({"make"}))) == Strings{"offsets", "window"});
  CHECK(captures(tracedWith(text, with({"make(window=3)"}))) == Strings{"offsets"});
  CHECK(captures(traced(text + "mask_mod = make(rare, 3)\n")) == Strings{"offsets"});
  const std::string four = "def make(w: int, h: int, kw: int, kh: int):\n"
                           "  return lambda b, h_, q, k: (q // w == k // h) & (q % kw == k % kh)\n";
  CHECK(captures(tracedWith(four, with({"make"}))) == Strings{"w", "h", "kw", "kh"});
}

TEST_CASE("captures that are there are taken where a name is missing", "[dsl][published]") {
  CaptureInfo ids{.name = "ids", .dtype = DType::I64, .extent = {"ids_0"}};
  CaptureInfo unused{.name = "unused", .dtype = DType::F32, .extent = {"4"}};
  const std::string text = "def f(b, h, q_idx, kv_idx): return ids[q_idx] == ids[kv_idx]\n";
  const ir::Module module = tracedWith(text, with({}, {}, {ids, unused}));
  CHECK(captures(module) == Strings{"ids"});
  CHECK(module.tensors[0].dtype == DType::I64);
  CHECK(captures(tracedWith("ids = rare(1)\n" + text, with({}, {}, {ids}))) == Strings{"ids"});
  CHECK(captures(tracedWith("ids: i32[KV_LEN]\n" + text, with({}, {}, {ids}))) == Strings{"ids"});
  CHECK(captures(tracedWith("ids = [1, 2]\ndef f(b, h, q, k): return q > ids[0]\n", with({}, {}, {ids}))).empty());
}

TEST_CASE("the mod is found among other functions", "[dsl][published]") {
  const std::string soft = "def soft(score, b, h, q_idx, kv_idx): return score / 2\n";
  ir::Module both = traced(soft + kCausal);
  CHECK(both.output(ir::kScore));
  CHECK(both.output(ir::kMask));
  // One that others call, one that is no mod by its names, one that is given away.
  CHECK(irOf(kCausal + "def window(b, h, q_idx, kv_idx): return causal(b, h, q_idx, kv_idx) & (q_idx > 3)\n") ==
        irOf(kCausal + "mask_mod = lambda b, h, q_idx, kv_idx: causal(b, h, q_idx, kv_idx) & (q_idx > 3)\n"));
  CHECK(irOf(kCausal + "def mix(a, b, c, d): return a + b\n") == irOf(kCausal));
  CHECK(irOf(kCausal + "def full(b, h, q_idx, kv_idx): return True\ndef run(x):\n"
                       "  return create_block_mask(causal, 1, 1, x, x)\nrun(3)\n") == irOf(kCausal));
}
