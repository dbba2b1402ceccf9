// What a class says of its objects is asked, or refused; features/special_methods.py has what CPython gives.
#include "dsl/tracing.h"

#include <catch2/catch.hpp>

using namespace attnc;
using namespace attnc::testing;

using Problems = std::vector<std::string>;

TEST_CASE("objects with traced fields are compared as their fields are", "[dsl][classes]") {
  const Running running(
      "from dataclasses import dataclass\n"
      "@dataclass\nclass Place:\n  row: int\n  column: tuple = ()\n"
      "def mask_mod(b, h, q_idx, kv_idx):\n"
      "  return Place(q_idx, (kv_idx, 1)) == Place(kv_idx % 4, (5, 1))\n"
      "def score_mod(score, b, h, q_idx, kv_idx):\n"
      "  return score + (Place(q_idx) != Place(kv_idx)) + ([Place(1), q_idx] == [Place(1), kv_idx]) * 2\n");
  CHECK(running.mask(0, 0, 1, 5));
  CHECK_FALSE(running.mask(0, 0, 2, 5));
  CHECK_FALSE(running.mask(0, 0, 1, 9));
  CHECK(running.score(0, 0, 0, 3, 3) == 2);
  CHECK(running.score(0, 0, 0, 3, 4) == 1);
}

TEST_CASE("methods that would be ignored are refused", "[dsl][classes]") {
  const auto refused = [](const std::string& text) { return problems("from dataclasses import *\n" + text); };
  for (const char* name : {"__new__", "__setattr__", "__getattribute__", "__get__", "__set__", "__set_name__"}) {
    INFO(name);
    CHECK(refused("class A:\n  x = 1\n  def " + std::string(name) + "(self, *rest): return 3\nclass B(A): pass\n" +
                  "score + B().x") == Problems{"unsupported-syntax at 6:9"});
  }
  CHECK(refused("class A:\n  def __init_subclass__(cls): cls.x = 3\nclass B(A): x = 1\nscore + B.x") ==
        Problems{"unsupported-syntax at 4:1"});
  CHECK(refused("class M(type): pass\nclass B(metaclass=M): x = 1\nscore + B.x") ==
        Problems{"unsupported-syntax at 3:19"});
  CHECK(refused("@dataclass\nclass A:\n  x: InitVar[int]\n  y: int = 1\nscore + A(3).y") ==
        Problems{"unsupported-syntax at 6:9"});
  CHECK(refused("@dataclass(init=False)\nclass A:\n  y: int = 1\nscore + A().y") ==
        Problems{"unsupported-syntax at 2:17"});
  CHECK(refused("@dataclass(frozen=True)\nclass A:\n  y: int\na = A(1)\na.y = 2\nscore + a.y") ==
        Problems{"attribute-assigned at 6:1"});
  CHECK(refused("class A:\n  @property\n  def y(self): return 1\na = A()\na.y = 2\nscore + a.y") ==
        Problems{"attribute-assigned at 6:1"});
  CHECK(refused("@dataclass(order=True)\nclass A:\n  y: int\nscore + (A(1) < A(2))") ==
        Problems{"bad-operands at 5:9"});
  CHECK(refused("from typing import NamedTuple\nclass A(NamedTuple):\n  y: int\nscore + (A(1) == A(1))") ==
        Problems{"bad-operands at 5:9"});
  CHECK(refused("class A: pass\nwith A() as a: x = 1\nscore + x") == Problems{"unknown-attribute at 3:6"});
  CHECK(refused("class A:\n  def __bool__(self): return 1\nscore + (1 if A() else 2)") ==
        Problems{"bad-argument at 4:15"});
  CHECK(refused("n: int\nclass A:\n  def __bool__(self): return n > 1\nscore + (1 if A() else 2)") ==
        Problems{"traced-condition at 5:15"});
  CHECK(refused("class A:\n  def __len__(self): return -1\nscore + (1 if A() else 2)") ==
        Problems{"bad-argument at 4:15"});
}
