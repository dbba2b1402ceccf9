// Texts and the trees they parse to.
#include "dsl/frontend.h"
#include "helpers/take.h"

#include <catch2/catch.hpp>

#include <string>

using namespace attnc;

namespace {

std::string ast(const std::string& text) {
  auto tree = dsl::astText(text, {"mod.py", {}});
  return tree ? *tree : tree.error().message;
}

} // namespace

TEST_CASE("operators bind as in Python", "[dsl][parser]") {
  CHECK(ast("a + b * c - d") == "(- (+ a (* b c)) d)\n");
  CHECK(ast("-a ** -b") == "(- (** a (- b)))\n");
  CHECK(ast("a ** b ** c") == "(** a (** b c))\n");
  CHECK(ast("a | b ^ c & d << e + f") == "(| a (^ b (& c (<< d (+ e f)))))\n");
  CHECK(ast("a & b == c") == "(compare (& a b) == c)\n");
  CHECK(ast("not a == b and c or d") == "(or (and (not (compare a == b)) c) d)\n");
  CHECK(ast("a < b <= c is not d not in e") == "(compare a < b <= c is-not d not-in e)\n");
  CHECK(ast("a if b else c if d else e") == "(if b a (if d c e))\n");
  CHECK(ast("~a.b(c)[d]") == "(~ ([] (call (. a b) c) d))\n");
  CHECK(ast("a // b % c @ d") == "(@ (% (// a b) c) d)\n");
  CHECK(ast("lambda x, y=1, *z: x + y") == "(lambda (x y=1 *z) (+ x y))\n");
}

TEST_CASE("brackets hold tuples, lists, slices and comprehensions", "[dsl][parser]") {
  CHECK(ast("()") == "(tuple)\n");
  CHECK(ast("(a)") == "a\n");
  CHECK(ast("(a,)") == "(tuple a)\n");
  CHECK(ast("a, b") == "(tuple a b)\n");
  CHECK(ast("[a, *b,]") == "(list a (* b))\n");
  CHECK(ast("a[b, :, 1:2, ::3, ...]") == "([] a (tuple b (slice _ _ _) (slice 1 2 _) (slice _ _ 3) ...))\n");
  CHECK(ast("f(a, *b, c=d)") == "(call f a (* b) c=d)\n");
  CHECK(ast("[x for x, y in z if x if y]") == "(comprehension x (for (tuple x y) z) (if x) (if y))\n");
  CHECK(ast("any(x for x in y for z in x)") == "(call any (comprehension x (for x y) (for z x)))\n");
}

TEST_CASE("literals have the values that Python gives them", "[dsl][parser]") {
  CHECK(ast("0xFf, 0o17, 0b101, 1_000, 00") == "(tuple 255 15 5 1000 0)\n");
  CHECK(ast("1.5, .5, 5., 1e3, 1_0.0_1, 1E-2") == "(tuple 1.5 0.5 5 1000 10.01 0.01)\n");
  CHECK(ast("1e999") == "inf\n");
  CHECK(ast("9223372036854775807") == "9223372036854775807\n");
  CHECK(ast("x = 'a' \"b\" r'\\n' '\\n'") == "(= x \"ab\\\\n\\n\")\n");
  CHECK(ast("x = None, True, False") == "(= x (tuple None True False))\n");
}

TEST_CASE("statements nest by indentation", "[dsl][parser]") {
  CHECK(ast("def f(a: int, b=2, *, c) -> float:\n"
            "  '''Doc.'''\n"
            "  for i, j in x:\n"
            "    if a: continue\n"
            "    elif b:\n"
            "      break\n"
            "    else: pass\n"
            "  else:\n"
            "    y += 1\n"
            "  while a: return\n"
            "  return a\n"
            "n: f32[H]\n") == "(def f (a b=2 c!))\n"
                              "  \"Doc.\"\n"
                              "  (for (tuple i j) x)\n"
                              "    (if a)\n"
                              "      (continue)\n"
                              "    (elif b)\n"
                              "      (break)\n"
                              "    (else)\n"
                              "      (pass)\n"
                              "  (else)\n"
                              "    (+= y 1)\n"
                              "  (while a)\n"
                              "    (return _)\n"
                              "  (return a)\n"
                              "(: n ([] f32 H))\n");
}

TEST_CASE("lines are joined in brackets and after a backslash", "[dsl][parser]") {
  CHECK(ast("a = (1 + # one\n  2)\nb = 1 + \\\n 2; c = 3\r\nd = 4\r") ==
        "(= a (+ 1 2))\n(= b (+ 1 2))\n(= c 3)\n(= d 4)\n");
  CHECK(ast("if a:\n\n  # comment\n\n    \n  b\n# end") == "(if a)\n  b\n");
  CHECK(ast("\xef\xbb\xbf"
            "a") == "a\n");
  CHECK(ast("") == "");
}

TEST_CASE("imports and assignments to several targets are kept", "[dsl][parser]") {
  CHECK(ast("import torch, math as m, torch.nn.functional as F") ==
        "(import torch math as m torch.nn.functional as F)\n");
  CHECK(ast("from functools import (partial as p, reduce,)") == "(from functools partial as p reduce)\n");
  CHECK(ast("a = b, c = d") == "(= a (tuple b c) d)\n");
  CHECK(ast("a[0] = b") == "(= ([] a 0) b)\n");
}

TEST_CASE("a wrong text has no tree", "[dsl][parser]") {
  CHECK(refusalOf(dsl::astText("a = = b", {"mod.py", {}})).message ==
        "mod.py:1:5: error: unexpected `=`, expected an expression\na = = b\n    ^\nnote: did you mean `==`?\n");
}
