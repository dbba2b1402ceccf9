// Binding: every mismatch is an error of the environment that names the capture.
#include "helpers/take.h"
#include "ir/bind.h"
#include "ir/reader.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> allocations{0};
}

void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

using namespace attnc;
using namespace attnc::ir;

namespace {

Module moduleOf(std::string_view text) { return take(read(text)); }

std::string errorOf(const Module& module, const Captures& captures, const ProblemShape& problem = {.qHeads = 4}) {
  auto bindings = bind(module, captures, problem);
  if (bindings) return "";
  CHECK(bindings.error().blame == Blame::Environment);
  return bindings.error().message + "\n" + bindings.error().remedy;
}

float memory[64];
TensorView f32(std::initializer_list<int64_t> shape) { return TensorView::contiguous(memory, DType::F32, shape); }

} // namespace

TEST_CASE("bindings come in the order of the module, whatever the order of the captures") {
  Module module =
      moduleOf("dim N\ntensor z: f32[N, H]\ntensor a: f32[2, N]\nscalar s: f32\nscalar i: i32\nscalar b: bool");
  Captures captures;
  captures.set("a", f32({2, 3})).set("z", f32({3, 4})).set("b", true).set("i", -7).set("s", 0.1);
  auto bindings = take(bind(module, captures, {.batch = 2, .qHeads = 4, .kvHeads = 1, .qLen = 5, .kvLen = 6}));
  CHECK(bindings.tensors[0].shape[1] == 4);
  CHECK(bindings.tensors[1].shape[0] == 2);
  CHECK(bindings.scalars[0].real == double(0.1f));
  CHECK(bindings.scalars[1].integer == -7);
  CHECK(bindings.scalars[2].integer == 1);
  CHECK(llvm::ArrayRef<int64_t>(bindings.dims) == llvm::ArrayRef<int64_t>({2, 4, 1, 5, 6, 3}));
}

TEST_CASE("binding a usual mod allocates nothing, since every launch binds") {
  Module module = moduleOf(
      "dim N\ntensor slopes_per_head_of_the_layer: f32[N, H]\ntensor a: f32[2, N]\nscalar s: f32\nscalar i: i32");
  Captures captures;
  captures.set("slopes_per_head_of_the_layer", f32({3, 4})).set("a", f32({2, 3})).set("i", -7).set("s", 0.1);
  int64_t before = allocations;
  auto bindings = bind(module, captures, {.qHeads = 4});
  CHECK(allocations == before);
  REQUIRE(bindings);
  CHECK(bindings->tensors.size() == 2);
}

TEST_CASE("an int is taken for a float scalar, and nothing else is converted") {
  Module module = moduleOf("scalar s: f32\nscalar i: i32\nscalar b: bool");
  Captures captures;
  captures.set("s", 2).set("i", 1).set("b", false);
  CHECK(errorOf(module, captures) == "");
  CHECK_THAT(errorOf(module, Captures(captures).set("i", 1.0)),
             Catch::Contains("'i' is declared as an int, but a float"));
  CHECK_THAT(errorOf(module, Captures(captures).set("i", true)), Catch::Contains("but a bool is given"));
  CHECK_THAT(errorOf(module, Captures(captures).set("b", 1)), Catch::Contains("'b' is declared as a bool, but an int"));
  CHECK_THAT(errorOf(module, Captures(captures).set("s", false)), Catch::Contains("'s' is declared as a float"));
  CHECK_THAT(errorOf(module, Captures(captures).set("s", f32({}))), Catch::Contains("but a tensor is given"));
  CHECK_THAT(errorOf(module, Captures(captures).set("i", int64_t(1) << 31)), Catch::Contains("'i' is 2147483648"));
  CHECK(errorOf(module, Captures(captures).set("i", -(int64_t(1) << 31))) == "");
}

TEST_CASE("missing and undeclared captures are told by name, with what is declared") {
  Module module = moduleOf("tensor slopes: f32[H, 3]\nscalar window: i32");
  Captures captures;
  CHECK_THAT(errorOf(module, captures), Catch::Contains("'slopes' is missing") && Catch::Contains("slopes: f32[H, 3]"));
  captures.set("slopes", f32({4, 3}));
  CHECK_THAT(errorOf(module, captures), Catch::Contains("'window' is missing") && Catch::Contains("window: int"));
  captures.set("window", 4).set("windw", 3);
  CHECK_THAT(errorOf(module, captures), Catch::Contains("'windw' is given") && Catch::Contains("slopes, window"));
  CHECK_THAT(errorOf(Module(), Captures().set("x", 1)), Catch::Contains("declares no captures"));
}

TEST_CASE("a tensor's kind, dtype, rank, extents and data are checked") {
  Module module = moduleOf("dim N\ntensor t: f32[H, 3, N]\ntensor u: f32[N]");
  Captures captures;
  captures.set("t", f32({4, 3, 5})).set("u", f32({5}));
  CHECK(errorOf(module, captures) == "");
  auto with = [&](const char* name, auto value) { return errorOf(module, Captures(captures).set(name, value)); };
  CHECK_THAT(with("t", 1), Catch::Contains("'t' is declared as a tensor, but an int is given"));
  CHECK_THAT(with("t", TensorView::contiguous(memory, DType::BF16, {4, 3, 5})),
             Catch::Contains("bf16, but the mod declares f32"));
  CHECK_THAT(with("t", f32({4, 3})), Catch::Contains("'t' has 2 axes, but the mod declares 3: f32[H, 3, N]"));
  CHECK_THAT(with("t", f32({5, 3, 5})), Catch::Contains("axis 0 is 5, but H is 4"));
  CHECK_THAT(with("t", f32({4, 2, 5})), Catch::Contains("axis 1 is 2, but the mod declares 3"));
  CHECK_THAT(with("u", f32({6})), Catch::Contains("'u': extent of axis 0 is 6, but N is 5"));
  CHECK_THAT(with("u", TensorView::contiguous(nullptr, DType::F32, {5})), Catch::Contains("'u' has no data"));
  CHECK_THAT(with("u", f32({int64_t(1) << 31})), Catch::Contains("out of range"));
  captures.set("t", TensorView::contiguous(nullptr, DType::F32, {4, 3, 0}));
  captures.set("u", TensorView::contiguous(nullptr, DType::F32, {0}));
  CHECK(errorOf(module, captures) == "");
}

TEST_CASE("conditions are asked of extents and scalars, in their own words") {
  Module module = moduleOf("source \"mod.py\"\ndim N\ntensor t: f32[N]\nscalar p: f32\nscalar on: bool\n"
                           "%0 = add i32 #B, 1\n%1 = eq i32 #N, %0\n%2 = lt f32 @p, 1.0\n%3 = or bool %2, @on\n"
                           "output condition_0() -> %1 else \"t has B + 1 entries\" !4\n"
                           "output condition_1() -> %3 else \"p is too large\"\n");
  Captures captures;
  captures.set("t", f32({3})).set("p", 0.5).set("on", false);
  CHECK(errorOf(module, captures, {.batch = 2}) == "");
  CHECK(errorOf(module, captures, {.batch = 3}) ==
        "mod.py:4: t has B + 1 entries (B = 3, N = 3)\nthe mod sets this as a condition of every launch");
  captures.set("p", 1.5);
  CHECK_THAT(errorOf(module, captures, {.batch = 2}), Catch::StartsWith("p is too large (p = 1.5, on = False)\n"));
  CHECK(errorOf(module, captures.set("on", true), {.batch = 2}) == "");
}

TEST_CASE("problems beyond 2^24 rows, with negative extents or uneven groups of heads are refused") {
  CHECK_THAT(errorOf(Module(), {}, {.qHeads = 4, .kvHeads = 3}), Catch::Contains("no multiple of HKV = 3"));
  CHECK(errorOf(Module(), {}, {.qLen = 1 << 24}) == "");
  CHECK_THAT(errorOf(Module(), {}, {.qLen = (1 << 24) + 1}), Catch::Contains("Q_LEN is 16777217"));
  CHECK_THAT(errorOf(Module(), {}, {.kvLen = -1}), Catch::Contains("KV_LEN is -1"));
  CHECK(errorOf(Module(), {}, {.qLen = 0, .kvLen = 0}) == "");
}

TEST_CASE("a launch is held to what its grids say") {
  const Module module = moduleOf("scalar h: i32\nscalar w: i32\nscalar t: i32\ngrid [@h, @w] before @t\n");
  const auto error = [&](int64_t h, int64_t w, int64_t t) {
    Captures captures;
    captures.set("h", h).set("w", w).set("t", t);
    return errorOf(module, captures);
  };
  CHECK(error(4, 5, 0).empty());
  CHECK(error(1 << 12, 1 << 12, 0).empty());
  CHECK(error(0, 5, 0).find("an extent of a grid is h, which is 0; it must lie in 1..16777216") == 0);
  CHECK(error(4, -5, 0).find("an extent of a grid is w, which is -5;") == 0);
  CHECK(error(4, 5, -1).find("a grid begins at t, which is -1; it must lie in 0..16777215") == 0);
  CHECK(error(1 << 12, 1 << 12, 1).find("a grid ends behind 16777216 tokens") == 0);
  CHECK(error(1 << 24, 1 << 24, 0).find("a grid ends behind 16777216 tokens") == 0);
}
