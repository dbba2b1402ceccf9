// Claims through the C interface: answers as JSON, and what is refused.
#include "calls.h"

#include <nlohmann/json.hpp>

using namespace ctest;

TEST_CASE("claims about masks are answered as JSON", "[c]") {
  const Owned<attnc_mod> window = parse("window: int\nFAR = 4\ndef mask_mod(b, h, q_idx, kv_idx):\n"
                                        "    return (q_idx >= kv_idx) & (q_idx - kv_idx < window)\n"),
                         strict = parse("q_idx > kv_idx");
  auto claim = sized<attnc_claim>();
  const auto answer = [&] {
    const char* json = nullptr;
    TAKE(attnc_prove(window.get(), &claim, &json));
    return nlohmann::json::parse(json);
  };
  claim.property = "kv_idx <= q_idx";
  CHECK(answer()["answer"] == "proved");
  claim.property = "kv_idx < q_idx";
  const auto refuted = answer();
  CHECK(refuted["answer"] == "refuted");
  CHECK(refuted["by"] == "examples");
  CHECK(refuted["example"]["extents"]["Q_LEN"] == 1);
  CHECK(refuted["example"]["picture"] == "X\n");
  CHECK(refuted["example"]["deciding"][0]["line"] == 4);
  claim.assume = "window < 1;";
  CHECK(answer()["answer"] == "undecided"); // no score lives
  claim.assume = nullptr;
  claim.property = nullptr;
  claim.other = strict.get();
  CHECK(answer()["answer"] == "refuted");
  const attnc_mod* const assumptions[] = {strict.get()};
  claim.assumptions = assumptions, claim.assumption_count = 1;
  CHECK(answer()["answer"] == "proved");
  claim.assumption_count = 0;
  claim.kind = ATTNC_CLAIM_SAME_MASK;
  CHECK(answer()["answer"] == "refuted");
  claim.kind = ATTNC_CLAIM_NEVER;
  claim.other = nullptr;
  claim.property = "kv_idx > q_idx + FAR";
  CHECK(answer()["answer"] == "proved");
  claim.kind = ATTNC_CLAIM_HOLDS;
  claim.property = "q_idx < Q_LEN";
  CHECK(answer()["answer"] == "proved");
  claim.kv_lengths = 1;
  CHECK(answer()["example"]["kv_length"] > 1);
  claim.offsets = ATTNC_OFFSETS_NONE;
  CHECK(answer()["answer"] != "refuted");
  claim.offsets = ATTNC_OFFSETS_TENSOR;
  CHECK(answer()["example"]["q_offset"] > 0);
}

TEST_CASE("claims that are none are refused", "[c]") {
  const Owned<attnc_mod> causal = parse("q_idx >= kv_idx");
  auto claim = sized<attnc_claim>();
  const char* json = nullptr;
  REFUSED(ATTNC_ERROR_ARGUMENT, "claim is NULL", attnc_prove(causal.get(), nullptr, &json));
  REFUSED(ATTNC_ERROR_ARGUMENT, "mod is NULL", attnc_prove(nullptr, &claim, &json));
  REFUSED(ATTNC_ERROR_ARGUMENT, "json is NULL", attnc_prove(causal.get(), &claim, nullptr));
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "the claim has no other mod", attnc_prove(causal.get(), &claim, &json));
  claim.assumption_count = 1;
  REFUSED(ATTNC_ERROR_ARGUMENT, "claim.assumptions is NULL", attnc_prove(causal.get(), &claim, &json));
  claim.assumption_count = 0;
  claim.property = "score > 1";
  REFUSED(ATTNC_ERROR_MOD, "<claim>:1:30: error: `score` is not defined", attnc_prove(causal.get(), &claim, &json));
  auto found = sized<attnc_diagnostic>();
  TAKE(attnc_last_diagnostic(0, &found));
  CHECK(std::string(found.file) == "<claim>");
  claim.property = " ";
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "<claim> is empty", attnc_prove(causal.get(), &claim, &json));
  claim.property = "kv_idx >= 0";
  claim.assume = "doc does not decrease";
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "the mod captures no tensor `doc`", attnc_prove(causal.get(), &claim, &json));
  claim.kv_lengths = 2;
  REFUSED(ATTNC_ERROR_ARGUMENT, "claim.kv_lengths is 2", attnc_prove(causal.get(), &claim, &json));
  claim.kv_lengths = 0, claim.offsets = 9;
  REFUSED(ATTNC_ERROR_ARGUMENT, "claim.offsets is 9", attnc_prove(causal.get(), &claim, &json));
  claim.kind = 7, claim.offsets = 0;
  REFUSED(ATTNC_ERROR_ARGUMENT, "claim.kind is 7", attnc_prove(causal.get(), &claim, &json));
}
