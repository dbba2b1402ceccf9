// Mods from masks through the C interface.
#include "calls.h"

#include <nlohmann/json.hpp>

using namespace ctest;

TEST_CASE("a mask becomes a mod, and JSON", "[c]") {
  bool causal[4][4] = {};
  for (int q = 0; q < 4; ++q)
    for (int kv = 0; kv <= q; ++kv) causal[q][kv] = true;
  auto mask = sized<attnc_tensor>();
  mask.data = causal, mask.dtype = ATTNC_DTYPE_BOOL, mask.rank = 2, mask.shape[0] = mask.shape[1] = 4;
  TAKE(attnc_tensor_make_dense(&mask));
  const char* json = nullptr;
  attnc_mod* mod = nullptr;
  TAKE(attnc_infer(&mask, "a test's mask", &json, &mod));
  const auto found = nlohmann::json::parse(json);
  CHECK(found["expression"] == "q_idx >= kv_idx");
  CHECK(found["form"] == "formula");
  CHECK(found["shape"] == std::vector<int>{1, 1, 4, 4});
  CHECK(std::string(found["text"]).find("a test's mask, bool [4, 4]") != std::string::npos);
  auto info = sized<attnc_mod_info>();
  TAKE(attnc_mod_get_info(mod, &info));
  CHECK(info.has_mask_mod == 1);
  attnc_mod_destroy(mod);
  REFUSED(ATTNC_ERROR_ARGUMENT, "mask is NULL", attnc_infer(nullptr, nullptr, &json, &mod));
  mask.rank = 1;
  REFUSED(ATTNC_ERROR_ENVIRONMENT, "the mask is bool [4]", attnc_infer(&mask, nullptr, &json, &mod));
}
