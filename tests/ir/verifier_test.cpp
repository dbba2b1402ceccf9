// The verifier finds each kind of malformed module, and the hash sees every difference that matters.
#include "ir/hash.h"
#include "ir/reader.h"
#include "ir/verifier.h"

#include <catch2/catch.hpp>

#include <functional>
#include <set>

using namespace attnc;
using namespace attnc::ir;

namespace {

std::string findingOf(const std::function<void(Module&)>& build) {
  Module module;
  build(module);
  return verify(module).value_or("");
}

std::string hashOf(std::string_view text) {
  auto module = read(text);
  REQUIRE(module);
  return canonicalHash(*module);
}

} // namespace

TEST_CASE("the verifier names what breaks a rule of ops.def") {
  auto contains = [](const char* text) { return Catch::Contains(text); };
  CHECK_THAT(findingOf([](Module& m) {
               m.make(Op::Add, Type::Bool, {m.constBool(true), m.constBool(true)});
             }),
             contains("add does not exist for bool"));
  CHECK_THAT(findingOf([](Module& m) {
               m.make(Op::Add, Type::I32, {m.dim(0), m.constInt(Type::I64, 1)});
             }),
             contains("operand 2 has type i64"));
  CHECK_THAT(findingOf([](Module& m) {
               m.make(Op::Div, Type::I32, {m.dim(0), m.dim(1)});
             }),
             contains("div does not exist for i32"));
  CHECK_THAT(findingOf([](Module& m) {
               m.make(Op::Shl, Type::F32, {m.constF32(1), m.constF32(1)});
             }),
             contains("shl does not exist for f32"));
  CHECK_THAT(findingOf([](Module& m) {
               m.make(Op::And, Type::F32, {m.constF32(1), m.constF32(1)});
             }),
             contains("and does not exist for f32"));
  CHECK_THAT(findingOf([](Module& m) {
               m.make(Op::Lt, Type::I32, {m.dim(0), m.dim(1)});
             }),
             contains("lt has type i32, not bool"));
  CHECK_THAT(findingOf([](Module& m) { m.make(Op::IsNan, Type::Bool, {m.dim(0)}); }),
             contains("isnan does not exist for i32"));
  CHECK_THAT(findingOf([](Module& m) { m.make(Op::Cast, Type::I32, {m.dim(0)}); }),
             contains("cast i32 to its own type"));
  CHECK_THAT(findingOf([](Module& m) {
               m.make(Op::Select, Type::I32, {m.dim(0), m.dim(1), m.dim(2)});
             }),
             contains("the condition has type i32"));
  CHECK_THAT(findingOf([](Module& m) {
               m.make(Op::Select, Type::I32, {m.constBool(true), m.dim(1), m.constF32(0)});
             }),
             contains("operand 3 has type f32"));
  CHECK_THAT(findingOf([](Module& m) { m.make(Op::Neg, Type::I32, {m.dim(0)}, 3); }), contains("neg has an attribute"));
  CHECK_THAT(findingOf([](Module& m) {
               m.make(Op::Random, Type::F32, {m.dim(0), m.dim(0), m.dim(0), m.dim(0), m.dim(0)});
             }),
             contains("random: operand 1 has type i32, not i64"));
  CHECK_THAT(findingOf([](Module& m) {
               m.make(Op::Random, Type::I32, {m.constInt(Type::I64, 7), m.dim(0), m.dim(0), m.dim(0), m.dim(0)});
             }),
             contains("random has type i32, not f32"));
  CHECK_THAT(findingOf([](Module& m) { m.make(Op::Load, Type::F32, {}, 0); }), contains("not declared"));
  CHECK_THAT(findingOf([](Module& m) {
               m.tensors.push_back({"t", DType::F32, {{true, 1}}});
               m.make(Op::Load, Type::F32, {}, 0);
             }),
             contains("0 indices for 1 axes"));
}

TEST_CASE("the verifier names leaves, captures and outputs that are not well-formed") {
  auto contains = [](const char* text) { return Catch::Contains(text); };
  CHECK_THAT(findingOf([](Module& m) { m.constant(Type::Bool, 2); }), contains("neither 0 nor 1"));
  CHECK_THAT(findingOf([](Module& m) { m.constant(Type::I32, 1ll << 31); }), contains("does not fit"));
  CHECK_THAT(findingOf([](Module& m) { m.constant(Type::F32, -1); }), contains("32-bit pattern"));
  CHECK_THAT(findingOf([](Module& m) { m.make(Op::Param, Type::I32, {}, kParamCount); }),
             contains("param does not exist"));
  CHECK_THAT(findingOf([](Module& m) { m.make(Op::Param, Type::F32, {}, 2); }), contains("param h has type f32"));
  CHECK_THAT(findingOf([](Module& m) { m.make(Op::Dim, Type::I32, {}, 5); }), contains("dim is not declared"));
  CHECK_THAT(findingOf([](Module& m) { m.make(Op::Scalar, Type::I32, {}, 0); }), contains("scalar is not declared"));
  CHECK_THAT(findingOf([](Module& m) { m.scalars = {{"1x", Type::I32}}; }), contains("'1x' is not a name"));
  CHECK_THAT(findingOf([](Module& m) { m.scalars = {{"s", Type::I64}}; }), contains("has type i64"));
  CHECK_THAT(findingOf([](Module& m) {
               m.tensors.push_back({"t", DType::F32, {{false, -1}}});
             }),
             contains("extent -1"));
  CHECK_THAT(findingOf([](Module& m) {
               m.tensors.push_back({"t", DType::F32, {{true, 9}}});
             }),
             contains("not declared"));
  CHECK_THAT(findingOf([](Module& m) { m.dims[0] = "X"; }), contains("first dims"));
  CHECK_THAT(findingOf([](Module& m) { m.setOutput(kScore, m.dim(0)); }),
             contains("output score has type i32, not f32"));
  CHECK_THAT(
      findingOf([](Module& m) { m.setOutput(kMask, m.make(Op::IsNan, Type::Bool, {m.param(ParamKind::Score)})); }),
      contains("output mask depends on score, which is none of its parameters"));
  CHECK_THAT(findingOf([](Module& m) { m.setOutput(kMask, Value{3}); }),
             contains("the value of output mask is not a node"));
}

TEST_CASE("an output keeps to the parameters that it declares, and a well-known one to those of its role") {
  auto finding = [](llvm::StringRef name, ParamSet params, ParamKind param) {
    return findingOf([&](Module& m) { m.setOutput(name, params, m.param(param)); });
  };
  CHECK(finding("kv_bound", {ParamKind::B, ParamKind::QIdx}, ParamKind::QIdx) == "");
  CHECK(finding("kv_bound", {ParamKind::B, ParamKind::QIdx}, ParamKind::KvIdx) ==
        "output kv_bound depends on kv_idx, which is none of its parameters");
  CHECK(finding("d slopes", {ParamKind::B}, ParamKind::B) == "'d slopes' is not a name");
  CHECK(finding("score", {ParamKind::Score}, ParamKind::Score) == "");
  CHECK(finding("score", {}, ParamKind::Score) == "output score depends on score, which is none of its parameters");
  CHECK(findingOf([](Module& m) { m.setOutput("mask", {ParamKind::Score}, m.constBool(true)); }) ==
        "output mask cannot have the parameter score");
}

TEST_CASE("a condition is a bool that the host can tell before a launch") {
  auto finding = [](ParamSet params, auto value, const char* name = "condition_0") {
    return findingOf([&](Module& m) {
      m.tensors.push_back({"t", DType::Bool, {{true, 1}}});
      m.setOutput({name, params, value(m), "words"});
    });
  };
  const auto isTrue = [](Module& m) { return m.constBool(true); };
  CHECK(finding({}, isTrue) == "");
  CHECK(finding({ParamKind::B}, isTrue) == "condition condition_0 has parameters");
  CHECK(finding({}, isTrue, "mask") == "output mask cannot be a condition");
  CHECK(finding({}, [](Module& m) { return m.dim(0); }) == "condition condition_0 has type i32, not bool");
  CHECK(finding({}, [](Module& m) { return m.make(Op::Load, Type::Bool, {m.dim(0)}, 0); }) ==
        "condition condition_0 reads t");
}

TEST_CASE("outputs stand in one order however they are set, and names are unique") {
  Module module;
  const Value one = module.constInt(Type::I32, 1), two = module.constInt(Type::I32, 2);
  auto names = [&] {
    std::string text;
    for (const Output& output : module.outputs()) text += output.name + " ";
    return text;
  };
  module.setOutput("z", {}, one);
  module.setOutput(kMask, module.constBool(true));
  module.setOutput("a", {}, one);
  module.setOutput(kScore, module.constF32(0));
  CHECK(names() == "score mask a z ");
  module.setOutput("a", {ParamKind::B}, two);
  CHECK(names() == "score mask a z ");
  CHECK(module.output("a") == two);
  CHECK(module.outputs()[2].params == ParamSet{ParamKind::B});
  module.dropOutput(kMask);
  module.dropOutput("z");
  module.dropOutput("none such");
  CHECK(names() == "score a ");
  CHECK_FALSE(module.output(kMask));
}

TEST_CASE("names, lines, spacing, dead nodes and arena order do not change the hash") {
  std::string hash = hashOf("tensor t: f32[H]\nscalar w: i32\n%0 = load f32 t[%h] !3\n%1 = sub i32 %q_idx, @w\n"
                            "%2 = cast f32 %1\n%3 = add f32 %0, %2\noutput score(score, b, h, q_idx, kv_idx) -> %3\n");
  CHECK(hash.size() == 64);
  CHECK(hash == hashOf("source \"x.py\"\ntensor slopes: f32[H]\nscalar window: i32\n%d = neg i32 %b\n"
                       "%a = sub i32 %q_idx, @window !9\n%l = load f32 slopes[%h]\n%c = cast f32 %a\n"
                       "%r = add f32 %l, %c\noutput score(score, b, h, q_idx, kv_idx) -> %r\n"));
  CHECK(hashOf("dim N\ntensor t: f32[N]") == hashOf("dim M\ntensor u: f32[M]"));
}

TEST_CASE("each difference of op, type, constant, capture, extent and output changes the hash") {
  const char* texts[] = {
      "",
      "output mask(b, h, q_idx, kv_idx) -> true",
      "output mask(b, h) -> true",
      "output mark(b, h) -> true",
      "output mark(b, h) -> true\noutput mask(b, h) -> true",
      "output mask(b, h, q_idx, kv_idx) -> false",
      "output score(score, b, h, q_idx, kv_idx) -> %score",
      "output score(score, b, h, q_idx, kv_idx) -> 0.0",
      "output score(score, b, h, q_idx, kv_idx) -> -0.0",
      "output score(score, b, h, q_idx, kv_idx) -> nan",
      "output score(score, b, h, q_idx, kv_idx) -> nan:0x7fc00001",
      "output score(score, b, h, q_idx, kv_idx) -> %score\noutput mask(b, h, q_idx, kv_idx) -> true",
      "%0 = le i32 %kv_idx, %q_idx\noutput mask(b, h, q_idx, kv_idx) -> %0",
      "%0 = le i32 %q_idx, %kv_idx\noutput mask(b, h, q_idx, kv_idx) -> %0",
      "%0 = lt i32 %kv_idx, %q_idx\noutput mask(b, h, q_idx, kv_idx) -> %0",
      "%0 = le i32 %kv_idx, 4\noutput mask(b, h, q_idx, kv_idx) -> %0",
      "%0 = le i32 %kv_idx, 5\noutput mask(b, h, q_idx, kv_idx) -> %0",
      "%0 = le i32 %kv_idx, #H\noutput mask(b, h, q_idx, kv_idx) -> %0",
      "%0 = cast i64 %kv_idx\n%1 = le i64 %0, 4L\noutput mask(b, h, q_idx, kv_idx) -> %1",
      "output c() -> true",
      "output c() -> true else \"a\"",
      "output c() -> true else \"b\"",
      "output c() -> false else \"a\"",
      "scalar w: i32",
      "scalar w: f32",
      "scalar w: f32\nscalar v: i32",
      "scalar w: i32\nscalar v: f32",
      "scalar w: i32\nscalar v: i32\n%0 = le i32 @w, %b\noutput mask(b, h, q_idx, kv_idx) -> %0",
      "scalar w: i32\nscalar v: i32\n%0 = le i32 @v, %b\noutput mask(b, h, q_idx, kv_idx) -> %0",
      "tensor t: f32",
      "tensor t: f32[H]",
      "tensor t: f32[HKV]",
      "tensor t: f32[2]",
      "tensor t: f16[2]",
      "tensor t: f32[2, 2]",
      "dim N\ntensor t: f32[N]",
      "dim N\ntensor t: f32[N, N]",
      "dim N\ndim M\ntensor t: f32[N, M]",
  };
  std::set<std::string> hashes;
  for (const char* text : texts) {
    INFO(text);
    CHECK(hashes.insert(hashOf(text)).second);
  }
}

TEST_CASE("a very deep module is hashed and verified without deep recursion") {
  Module module;
  Value value = module.param(ParamKind::QIdx);
  for (int i = 0; i < 300000; ++i) value = module.make(Op::Add, Type::I32, {value, module.constInt(Type::I32, i)});
  module.setOutput(kMask, module.make(Op::Le, Type::Bool, {value, value}));
  CHECK_FALSE(verify(module));
  CHECK(canonicalHash(module).size() == 64);
}

TEST_CASE("the index of a sum exists inside it alone, and inner sums have smaller ids") {
  auto contains = [](const char* text) { return Catch::Contains(text); };
  const Loop loop{0, 16}, outer{1, 3};
  CHECK_THAT(findingOf([&](Module& m) {
               m.setOutput(kMask, m.make(Op::Eq, Type::Bool, {m.iter(loop), m.dim(0)}));
             }),
             contains("output mask depends on %i0 outside its sum"));
  CHECK_THAT(findingOf([&](Module& m) {
               m.make(Op::Sum, Type::I32, {m.iter({0, 17})}, loop.attr());
             }),
             contains("%i0 has another number of rounds"));
  CHECK_THAT(findingOf([&](Module& m) {
               Value both = m.make(Op::Add, Type::I32, {m.iter(loop), m.iter(outer)});
               m.make(Op::Sum, Type::I32, {m.make(Op::Sum, Type::I32, {both}, outer.attr())}, loop.attr());
             }),
             contains("a sum over %i1 stands inside that over %i0"));
  CHECK_THAT(findingOf([&](Module& m) { m.make(Op::Sum, Type::Bool, {m.constBool(true)}, loop.attr()); }),
             contains("sum does not exist for bool"));
  CHECK_THAT(findingOf([&](Module& m) {
               m.make(Op::Sum, Type::I32, {m.dim(0)}, Loop{0, 0}.attr());
             }),
             contains("0 rounds"));
  CHECK_THAT(findingOf([&](Module& m) {
               m.make(Op::Iter, Type::I32, {}, Loop{kMaxLoops, 2}.attr());
             }),
             contains("no valid id"));
}

TEST_CASE("the hash does not depend on the ids of loops, and does on their rounds") {
  auto text = [](const char* inner, const char* outer) {
    std::string at = std::string("%i") + inner, over = std::string("%i") + outer;
    return "%0 = mul i32 " + over + ":3, " + at + ":4\n%1 = sum i32 " + at + ":4, %0\n%2 = sum i32 " + over +
           ":3, %1\n%3 = le i32 %2, %kv_idx\noutput mask(b, h, q_idx, kv_idx) -> %3\n";
  };
  CHECK(hashOf(text("0", "1")) == hashOf(text("2", "5")));
  std::string longer = text("0", "1");
  for (size_t at; (at = longer.find(":3")) != std::string::npos;) longer[at + 1] = '5';
  CHECK(hashOf(longer) != hashOf(text("0", "1")));
}
