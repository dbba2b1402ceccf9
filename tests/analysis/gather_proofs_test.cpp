// What `attnc check` says about gathers, and what it costs: work is counted, for time says little on a loaded machine.
#include "analysis/gather_proofs.h"
#include "helpers/traced.h"

#include <catch2/catch.hpp>

using namespace attnc;
using namespace attnc::analysis;

namespace {

/// `x` after the statements, in a score_mod below the declaration of `t: f32[7]`.
ir::Module bodyOf(const std::string& statements) {
  return test::piped("t: f32[7]\ndef score_mod(score, b, h, q_idx, kv_idx):\n x = score\n" + statements +
                     "\n return x\n");
}

} // namespace

TEST_CASE("a proof of an index that never varies has no range") {
  const std::vector<GatherProof> proofs = proveGathers(bodyOf(" x = x + t[1] + t[min(h, 0)] + t[min(h, 5)]"));
  REQUIRE(proofs.size() == 3);
  CHECK(proofs[0].why == "always 1");
  CHECK(proofs[1].why == "always 0");
  CHECK(proofs[2].why == "0 <= index <= 5");
}

TEST_CASE("the search for counter-examples keeps to its budget, however many gathers and however deep") {
  // `v - v // 7 * 7` is inside of 7 elements, but intervals cannot tell, so nothing ends the search early.
  struct Case {
    const char* statements;
    size_t gathers;
  };
  for (const Case& one :
       {Case{" for i in range(1500):\n  v = q_idx + kv_idx * 3 + h * 5 + b + i\n  x = x + t[v - v // 7 * 7]", 1500},
        Case{" v = q_idx\n for k in range(1500):\n  v = (v * 3 + kv_idx * h) % 1000003 + b\n"
             "  x = x + t[v - v // 7 * 7]",
             1500},
        Case{" v = q_idx + kv_idx + h + b\n for k in range(9000): v = (v * 3 + kv_idx) % 1000003\n"
             " x = x + t[v - v // 7 * 7]",
             1},
        Case{" for i in range(40):\n  v = q_idx + kv_idx + h * b + i\n  x = x + t[v - v // 7 * 7]", 40}}) {
    INFO(one.statements);
    uint64_t work = 0;
    std::vector<GatherProof> proofs = proveGathers(bodyOf(one.statements), {}, &work);
    CHECK(proofs.size() == one.gathers);
    CHECK(work > 0);
    CHECK(work <= kMaxExampleWork);
    for (const GatherProof& proof : proofs) CHECK_THAT(proof.why, Catch::Contains("not proved"));
  }
}

TEST_CASE("one index read from many tensors is searched once") {
  auto workOf = [](int tensors) {
    std::string text, sum = "score";
    for (int i = 0; i < tensors; ++i) {
      text += "t" + std::to_string(i) + ": f32[7]\n";
      sum += " + t" + std::to_string(i) + "[q_idx + kv_idx - (q_idx + kv_idx) // 7 * 7]";
    }
    uint64_t work = 0;
    CHECK(proveGathers(test::piped(text + sum), {}, &work).size() == size_t(tensors));
    return work;
  };
  CHECK(workOf(1) > 0);
  CHECK(workOf(1) == workOf(50));
}

TEST_CASE("a few gathers get the examples they always got, whatever else the mod computes") {
  std::vector<GatherProof> alone = proveGathers(bodyOf(" x = x + t[kv_idx - q_idx + 8]"));
  std::vector<GatherProof> beside =
      proveGathers(bodyOf(" for k in range(6000): x = x * 2 + (q_idx * k) % 7\n x = x + t[kv_idx - q_idx + 8]"));
  REQUIRE(alone.size() == 1);
  REQUIRE(beside.size() == 1);
  CHECK_THAT(alone[0].why, Catch::Contains("gives index") && Catch::Contains("extent 7"));
  CHECK(alone[0].why == beside[0].why);
}

TEST_CASE("selects under a wide condition are analysed in linear time") {
  // One condition of 256 comparisons, each of which says something about q_idx; 4000 selects ask it or more.
  ir::Module module = bodyOf(" c = [q_idx > k for k in range(256)]\n"
                             " while len(c) > 1: c = [c[2 * k] & c[2 * k + 1] for k in range(len(c) // 2)]\n"
                             " i = q_idx\n for k in range(2000): i = where(c[0] ^ (h > k), i + kv_idx, q_idx - i)\n"
                             " for k in range(2000): i = where(c[0], i + k, q_idx - i)\n x = x + i");
  Intervals intervals(module);
  intervals.of({uint32_t(module.size() - 1)});
  size_t selects = 0;
  for (uint32_t id = 0; id < module.size(); ++id) selects += module[{id}].op == ir::Op::Select;
  CHECK(selects >= 4000);
  CHECK(intervals.conditionsAsked() > selects);
  CHECK(intervals.conditionsAsked() <= 64 * selects);
}

TEST_CASE("conditions of the launch prove gathers, and examples meet them") {
  const auto proofs = [](const std::string& head, const std::string& index) {
    return proveGathers(test::piped("t: f32[N]\nn: int\ndef score_mod(score, b, h, q_idx, kv_idx):\n    " + head +
                                    "\n    return score + t[" + index + "]\n"));
  };
  struct Case {
    const char *condition, *index;
    bool proven;
  };
  for (const Case& one : {
           Case{"assert t.shape[0] == B + 1", "b + 1", true},
           Case{"assert t.shape[0] - 1 == B", "b + 1", true},
           Case{"assert t.shape[0] >= B", "b + 1", false},
           Case{"assert t.shape[0] != B + 1", "b + 1", false},
           Case{"if t.shape[0] < KV_LEN: raise ValueError('short')", "kv_idx", true},
           Case{"if t.shape[0] <= KV_LEN: raise ValueError('short')", "kv_idx + 1", true},
           Case{"if t.shape[0] > KV_LEN: raise ValueError('long')", "kv_idx", false},
           Case{"assert Q_LEN == KV_LEN and len(t) == KV_LEN", "q_idx", true},
           Case{"assert not (Q_LEN > KV_LEN or len(t) < KV_LEN)", "q_idx", true},
           Case{"assert Q_LEN == KV_LEN or len(t) == KV_LEN", "kv_idx", false},
           Case{"assert 8 <= len(t)", "7", true},
           Case{"assert 8 <= len(t)", "8", false},
           Case{"assert len(t) >= n", "kv_idx", false},
           Case{"assert n > 0", "kv_idx", false},
       }) {
    INFO(one.condition << ", " << one.index);
    const std::vector<GatherProof> found = proofs(one.condition, one.index);
    REQUIRE(found.size() == 1);
    CHECK(found[0].proven == one.proven);
    CHECK(proofs("pass", one.index)[0].proven == false);
  }
  // KV_LEN = 8 and N = 4 would be the first example.
  CHECK_THAT(proofs("assert len(t) >= KV_LEN - 2", "kv_idx")[0].why, Catch::Contains("not proved"));
  CHECK_THAT(proofs("assert KV_LEN >= 100", "kv_idx")[0].why,
             Catch::Contains("kv_idx = ") && Catch::Contains("N = 16"));
  // No example problem has one entry more than B, but extents are changed until they agree.
  CHECK(proofs("assert t.shape[0] == B + 1", "b + 2")[0].why == "B = 2, b = 1 gives index 3, extent N = 3");
  CHECK(proofs("assert len(t) < 0", "b")[0].why ==
        "this is not proved; no example was found that meets the conditions of the launch");
}

TEST_CASE("a condition does not decide itself, so that launches are asked") {
  const ir::Module module = test::piped("t: f32[N]\nassert t.shape[0] == KV_LEN\nscore + t[kv_idx]");
  REQUIRE(module.outputs().size() == 2);
  CHECK(module.outputs()[1].isCondition());
  CHECK(module[module.outputs()[1].value].op == ir::Op::Eq);
  CHECK(module.outputs()[1].line == 2);
}

TEST_CASE("the same mod gets the same answers") {
  const char* statements = " for i in range(500): x = x + t[q_idx * i - kv_idx + h * b]";
  uint64_t first = 0, second = 0;
  std::vector<GatherProof> a = proveGathers(bodyOf(statements), {}, &first);
  std::vector<GatherProof> b = proveGathers(bodyOf(statements), {}, &second);
  CHECK(first == second);
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(a[i].why == b[i].why);
}
