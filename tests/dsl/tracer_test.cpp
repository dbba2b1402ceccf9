// What the IR of a text is: types, captures, extents, lines, and which function is the mod.
#include "dsl/tracing.h"
#include "ir/printer.h"

#include <catch2/catch.hpp>

#include <cmath>

using namespace attnc;
using namespace attnc::testing;

namespace {

/// Type of the mask's left-hand side in `x == 0`, or of any comparison's operands.
ir::Type typeOf(const std::string& expression) {
  ir::Module module = traced("t64: i64[H]; u8s: u8[H]; halves: f16[H]; flags: bool[H]; n: int; x: float; f: bool\n(" +
                             expression + ") == 0");
  return module[module[*module.output(ir::kMask)].operands[0]].type;
}

} // namespace

TEST_CASE("the IR of a mod is what its text says, with lines", "[dsl][tracer]") {
  CHECK(ir::print(traced("slopes: f32[H]\n\ndef score_mod(score, b, h, q_idx, kv_idx):\n"
                         "  distance = kv_idx - q_idx\n  return score + slopes[h] * distance\n")) ==
        "source \"mod.py\"\n"
        "tensor slopes: f32[H]\n"

        "%0 = sub i32 %kv_idx, %q_idx !4\n"
        "%1 = load f32 slopes[%h] !5\n"
        "%2 = cast f32 %0 !5\n"
        "%3 = mul f32 %1, %2 !5\n"
        "%4 = add f32 %score, %3 !5\n"
        "output score(score, b, h, q_idx, kv_idx) -> %4\n");
}

TEST_CASE("numbers adopt the type of the traced operand they meet", "[dsl][tracer]") {
  CHECK(typeOf("q_idx + 1") == ir::Type::I32);
  CHECK(typeOf("q_idx + 2147483648") == ir::Type::I64);
  CHECK(typeOf("q_idx + True") == ir::Type::I32);
  CHECK(typeOf("q_idx + 0.5") == ir::Type::F32);
  CHECK(typeOf("q_idx / 2") == ir::Type::F32);
  CHECK(typeOf("q_idx + t64[h]") == ir::Type::I64);
  CHECK(typeOf("t64[h] + 0.5") == ir::Type::F32);
  CHECK(typeOf("u8s[h] + h") == ir::Type::I32);
  CHECK(typeOf("halves[h]") == ir::Type::F32);
  CHECK(typeOf("flags[h] & f") == ir::Type::I32); // compared with 0
  CHECK(typeOf("(flags[h] * 2)") == ir::Type::I32);
  CHECK(typeOf("x + n") == ir::Type::F32);
  CHECK(typeOf("n // 2") == ir::Type::I32);
  CHECK(typeOf("H * 2") == ir::Type::I32);
  CHECK(typeOf("q_idx.long()") == ir::Type::I32); // which holds it
  CHECK(typeOf("q_idx + n") == ir::Type::I64);
  CHECK(typeOf("q_idx * KV_LEN") == ir::Type::I64);
  CHECK(typeOf("q_idx * KV_LEN % 7") == ir::Type::I32);
  CHECK(typeOf("u8s[h] * n") == ir::Type::I32);
  CHECK(typeOf("where(f, 1, 2)") == ir::Type::I32);
  CHECK(typeOf("where(f, 1, 2.0)") == ir::Type::F32);
  CHECK(typeOf("2 ** h") == ir::Type::I64);
  CHECK(typeOf("h ** -1") == ir::Type::F32);
}

TEST_CASE("captures and extents are declared by annotations, used or not", "[dsl][tracer]") {
  ir::Module module = traced("W = 3\na: f32[H, 2 * W + 1, N]\nb2: i32\nc: bool[KV_LEN, N]\nn: int\nx: float\nf: "
                             "bool\nd: torch.bfloat16[W]\nq_idx > N");
  REQUIRE(module.tensors.size() == 4);
  REQUIRE(module.scalars.size() == 3);
  REQUIRE(module.dims.size() == ir::kBuiltinDims + 1);
  CHECK(module.dims.back() == "N");
  CHECK(module.tensors[0].shape.size() == 3);
  CHECK(module.tensors[0].shape[0].isNamed);
  CHECK(module.tensors[0].shape[0].value == int64_t(ir::BuiltinDim::H));
  CHECK_FALSE(module.tensors[0].shape[1].isNamed);
  CHECK(module.tensors[0].shape[1].value == 7);
  CHECK(module.tensors[0].shape[2].value == int64_t(ir::kBuiltinDims));
  CHECK(module.tensors[1].shape.empty());
  CHECK(module.tensors[2].dtype == DType::Bool);
  CHECK(module.tensors[3].dtype == DType::BF16);
  CHECK(module.scalars[0].type == ir::Type::I32);
  CHECK(module.scalars[1].type == ir::Type::F32);
  CHECK(module.scalars[2].type == ir::Type::Bool);
}

TEST_CASE("a negative index counts from the end", "[dsl][tracer]") {
  Running running("t: f32[H, N]\nscore * 0 + t[-1, q_idx - 5]");
  for (int64_t q : {0, 4, 5, 9}) {
    int64_t column = q < 5 ? q + 2 : q - 5;
    CHECK(running.score(0, 0, 0, q, 0) == running.elements["t"][size_t(3 * 7 + column)]);
  }
}

TEST_CASE("an index that cannot be negative is not wrapped", "[dsl][tracer]") {
  std::string text = ir::print(traced("t: f32[H]\nd: u8[KV_LEN]\nscore + t[h // 2 + 1] + t[d[kv_idx] % 4] + "
                                      "t[abs(q_idx - kv_idx)] + t[min(q_idx, 3)]"));
  CHECK(text.find("select") == std::string::npos);
}

TEST_CASE("a define replaces a constant and what follows from it", "[dsl][tracer]") {
  const std::string text =
      "W = 4\nHALF = W // 2\nS = 1.5\nON = True\nP = (1, 2)\nscore * S + HALF + P[1] if ON else score";
  CHECK(Running(traced(text)).score(2, 0, 0, 0, 0) == 7);
  CHECK(Running(traced(text, {{"W", "10"}, {"S", "2"}})).score(2, 0, 0, 0, 0) == 11);
  CHECK(Running(traced(text, {{"HALF", "-7"}, {"P", "(0, 0x10)"}})).score(2, 0, 0, 0, 0) == 12);
  CHECK(Running(traced(text, {{"ON", "False"}})).score(2, 0, 0, 0, 0) == 2);
  CHECK(std::isinf(Running(traced(text, {{"S", "-float(\"inf\")"}})).score(2, 0, 0, 0, 0)));
  CHECK(Running(traced("W = 1\nW = 2\nscore + W", {{"W", "5"}})).score(0, 0, 0, 0, 0) == 5);
  CHECK(Running(traced("W: int = 4\nscore + W", {{"W", "5"}})).score(0, 0, 0, 0, 0) == 5);
}

TEST_CASE("the mod is found by name, by arity, or as the last expression", "[dsl][tracer]") {
  auto kinds = [](const std::string& text) {
    ir::Module module = traced(text);
    return std::make_pair(module.output(ir::kScore).has_value(), module.output(ir::kMask).has_value());
  };
  const auto score = std::make_pair(true, false), mask = std::make_pair(false, true), both = std::make_pair(true, true);
  CHECK(kinds("q_idx >= kv_idx") == mask);
  CHECK(kinds("score * 0.5") == score);
  CHECK(kinds("score > 0") == score);
  CHECK(kinds("True") == mask);
  CHECK(kinds("def f(score): return score > 3\nf(q_idx)") == mask);
  CHECK(kinds("window: int\nq_idx - kv_idx <= window") == mask);
  CHECK(kinds("lambda b, h, q, k: q >= k") == mask);
  CHECK(kinds("lambda s, b, h, q, k: s") == score);
  CHECK(kinds("def soft(s, b, h, q, k, c=2.0): return s / c") == score);
  CHECK(kinds("def causal(b, h, q, k): return q >= k") == mask);
  CHECK(kinds("def f(n, b, h, q, k): return q >= k\nmask_mod = partial(f, 3)") == mask);
  CHECK(kinds("def score_mod(s, b, h, q, k): return s\nmask_mod = noop_mask") == both);
  CHECK(kinds("def helper(a, b, c, d): return a\ndef score_mod(s, b, h, q, k): return s\nmask_mod = None") == score);
}

TEST_CASE("a function with the name prob_mod gives the factor of weights, and is no score_mod", "[dsl][tracer]") {
  const std::string dropout = "seed: int\ndef prob_mod(prob, b, h, q_idx, kv_idx):\n"
                              "  return where(random(seed, b, h, q_idx, kv_idx) < 0.25, 0.0, prob / 0.75)\n";
  CHECK_THAT(ir::print(traced(dropout)), Catch::EndsWith("%5 = div f32 1.0, 0.75 !3\n%6 = select f32 %2, 0.0, %5 !3\n"
                                                         "output prob_factor(b, h, q_idx, kv_idx) -> %6\n"));
  const ir::Module both = traced(dropout + "def causal(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n");
  CHECK(both.output(ir::kMask));
  CHECK_FALSE(both.output(ir::kScore));
  CHECK(both.output(ir::kProbFactor));
}

TEST_CASE("a prob_mod that is no multiple of prob is a function of it", "[dsl][tracer]") {
  CHECK_THAT(
      ir::print(traced("def prob_mod(prob, b, h, q_idx, kv_idx):\n  return torch.where(prob > 0.25, prob, 0.0)\n")),
      Catch::EndsWith("select f32 %2, %prob, 0.0 !2\noutput prob_weight(b, h, q_idx, kv_idx, prob) -> %3\n"));
  const Running running("gain: f32[H]\ndef prob_mod(prob, b, h, q_idx, kv_idx):\n  return prob * prob + gain[h]\n");
  CHECK(running.prob(0.5, 0, 1, 2, 3) == 0.25f + running.elements.at("gain")[1]);
}

TEST_CASE("outputs are declared like captures, and reduce any function", "[dsl][tracer]") {
  const std::string text = "import attnc\nfar: f32[KV_LEN]\n"
                           "def make(power):\n"
                           "  return lambda prob, score, b, h, q, k: prob ** power * far[k] + score\n"
                           "column: attnc.f32[attnc.B, attnc.H, attnc.KV_LEN] = attnc.reduce_sum(make(2))\n"
                           "row: f32[B, H, Q_LEN] = reduce_max(make(1))\n"
                           "head: f32[B, H] = reduce_max(lambda prob, score, b, h, q, k: q > k)\n";
  for (const std::string& more : {std::string(), std::string("score_mod = lambda s, b, h, q, k: s * 2\n")}) {
    const ir::Module module = traced(text + more);
    CHECK(bool(module.output(ir::kScore)) == !more.empty());
    std::string found;
    for (const ir::Reduction& each : ir::reductionsOf(module)) found += each.output() + (each.isRowMax ? "! " : " ");
    CHECK(found == "reduce_max_h_head reduce_max_q_row reduce_sum_kv_column ");
  }
  const Running running(text);
  CHECK(running.reduced({"head", true, ir::Kept::Heads}, 0.5, 0, 1, 3, 2) == 1);
  CHECK(running.reduced({"column", false, ir::Kept::Keys}, 0.5, 0, 1, 3, 2) ==
        0.25 * running.elements.at("far")[2] + 0.5);
}

TEST_CASE("a sink_mod is known by its name, or if it is given or picked", "[dsl][tracer]") {
  const std::string sink = "sink: f32[H]\ndef sinks(b, h, q_idx):\n  return sink[h]\n";
  const std::string causal = "def causal(b, h, q_idx, kv_idx):\n  return q_idx >= kv_idx\n";
  CHECK_FALSE(traced(sink + causal).output(ir::kSink));
  for (const ir::Module& module :
       {traced(sink + causal + "sink_mod = sinks"), tracedWith(sink + causal, {.mods = {"sinks", "causal"}}),
        traced(sink + causal +
               "flex_attention(q, k, v, block_mask=create_block_mask(causal, 1, 1, 8, 8), sink_mod=sinks)")}) {
    CHECK(module.output(ir::kMask));
    CHECK_FALSE(module.output(ir::kScore));
    CHECK(module.output(ir::kSink));
  }
  CHECK(Running("def sink_mod(b, h, q_idx):\n  return 2").sink(0, 1, 3) == 2);
}

TEST_CASE("modules, helpers and dtypes are known without an import, and a definition of the file wins",
          "[dsl][tracer]") {
  CHECK(Running("score_mod = lambda s, b, h, q, k: torch.where(q >= k, F.relu(s), math.pi)").score(-2, 0, 0, 1, 0) ==
        0);
  CHECK(Running("score_mod = _identity").score(7, 0, 0, 0, 0) == 7);
  CHECK(Running("torch = 3\nF = 4\nmath = 5\nscore + torch + F + math").score(0, 0, 0, 0, 0) == 12);
  CHECK(Running("def F(x): return x * 2\nscore_mod = lambda s, b, h, q, k: F(s)").score(3, 0, 0, 0, 0) == 6);
  CHECK(Running("float32 = 2\nscore * float32").score(3, 0, 0, 0, 0) == 6);
  CHECK(traced("t: float32[H]\nscore + t[h]").tensors[0].dtype == DType::F32);
  CHECK(traced("partial: f32[F]\nmath: int\nscore + partial[h] + math").dims.back() == "F");
}

TEST_CASE("results are converted to what a mod returns", "[dsl][tracer]") {
  CHECK(Running("score_mod = lambda s, b, h, q, k: q").score(9, 0, 0, 3, 0) == 3);
  CHECK(Running("score_mod = lambda s, b, h, q, k: q > 2").score(9, 0, 0, 3, 0) == 1);
  CHECK(Running("score_mod = lambda s, b, h, q, k: 2").score(9, 0, 0, 3, 0) == 2);
  CHECK_FALSE(Running("mask_mod = lambda b, h, q, k: False").mask(0, 0, 0, 0));
}

TEST_CASE("integer corner cases follow Python and torch", "[dsl][tracer]") {
  auto at = [](const std::string& expression, int64_t q, int64_t kv) {
    return Running("score * 0 + (" + expression + ")").score(0, 0, 0, q, kv);
  };
  CHECK(at("(q_idx - kv_idx) // 4", 0, 1) == -1);
  CHECK(at("(q_idx - kv_idx) % 4", 0, 1) == 3);
  CHECK(at("(q_idx - kv_idx) % -4", 1, 0) == -3);
  CHECK(at("1 << q_idx", 33, 0) == 0x1p33);
  CHECK(at("(q_idx - kv_idx) >> 40", 0, 1) == -1);
  CHECK(at("(q_idx - kv_idx) >> q_idx", 40, 41) == -1);
  CHECK(at("q_idx << 40", 1, 0) == 0x1p40);
  CHECK(at("2 ** q_idx", 10, 0) == 1024);
  CHECK(at("2 ** q_idx", 32, 0) == 0x1p32);
  CHECK(at("3 ** q_idx", 5, 0) == 243);
  CHECK(at("(-1) ** q_idx", 7, 0) == -1);
  CHECK(at("kv_idx ** q_idx", 5, 3) == 243);
  CHECK(at("kv_idx ** q_idx", 0, 0) == 1);
  CHECK(at("2 ** (q_idx - kv_idx)", 0, 1) == 0);
  CHECK(at("q_idx ** 0", 0, 0) == 1);
  CHECK(at("q_idx ** -2", 2, 0) == 0.25);
  CHECK(at("~(q_idx > 0)", 1, 0) == 0);
  CHECK(at("~True", 1, 0) == 0);
  CHECK(at("2 ** -1 + 7 // -2 + -7 % 3 + 5 // 2.0 + -5 % 3.5", 0, 0) == 0.5 - 4 + 2 + 2 + 2);
  CHECK(at("int(-2.7) + int(2.7) + round(2.5) + round(3.5)", 0, 0) == 0 + 2 + 4);
  CHECK(at("min(3, 1.5) + max(2, 2.5, q_idx)", 9, 0) == 10.5);
}

namespace {

size_t count(const ir::Module& module, ir::Op op) {
  size_t result = 0;
  for (uint32_t id = 0; id < module.size(); ++id) result += module[{id}].op == op;
  return result;
}

} // namespace

TEST_CASE("a sum over 16 and more elements is one operation, whatever it is written as", "[dsl][tracer]") {
  const std::string captures = "import torch\nq: bf16[H, Q_LEN, 64]; k: bf16[KV_LEN, 64]; short: f32[H, 15]\n";
  for (const char* sum : {"torch.dot(q[h, q_idx], k[kv_idx])", "q[h, q_idx] @ k[kv_idx]",
                          "(q[h, q_idx] * k[kv_idx]).sum()", "torch.sum(q[h, q_idx] * k[kv_idx], dim=-1)",
                          "sum(q[h, q_idx] * k[kv_idx])", "(q[h, q_idx] * k[kv_idx]).mean()"}) {
    INFO(sum);
    ir::Module module = traced(captures + "score + " + sum);
    CHECK(count(module, ir::Op::Sum) == 1);
    CHECK(count(module, ir::Op::Load) == 2);
    CHECK(module.size() < 20);
  }
  ir::Module few = traced(captures + "score + short[h].sum()");
  CHECK(count(few, ir::Op::Sum) == 0);
  CHECK(count(few, ir::Op::Load) == 15);
  CHECK(traced(captures + "score + torch.dot(q[h, q_idx], k[kv_idx])").size() ==
        traced("import torch\nq: bf16[H, Q_LEN, 4096]; k: bf16[KV_LEN, 4096]; short: f32[H, 15]\n"
               "score + torch.dot(q[h, q_idx], k[kv_idx])")
            .size());
}

TEST_CASE("what is computed from a tensor elementwise is computed for the element that is taken", "[dsl][tracer]") {
  ir::Module module = traced("t: f32[1000, 32]\ndef score_mod(score, b, h, q, kv):\n"
                             "  u = t * 2 + 1\n  return score + u[h % 1000, kv % 32]\n");
  CHECK(count(module, ir::Op::Load) == 1);
  CHECK(count(module, ir::Op::Mul) == 1);
  CHECK(problems("t: f32[5000]\nscore + (t * 2).sum()") == std::vector<std::string>{"too-many-items at 2:9"});
}
