// Names of statuses, dtypes and families.
#include "calls.h"

TEST_CASE("enumerators have names, other numbers none", "[c]") {
  CHECK(std::string(attnc_status_name(ATTNC_OK)) == "ok");
  CHECK(std::string(attnc_status_name(ATTNC_ERROR_MEMORY)) == "memory");
  CHECK(attnc_status_name(6) == nullptr);
  CHECK(std::string(attnc_dtype_name(ATTNC_DTYPE_BOOL)) == "bool");
  CHECK(std::string(attnc_dtype_name(ATTNC_DTYPE_BF16)) == "bf16");
  CHECK(attnc_dtype_name(ATTNC_DTYPE_DEFAULT) == nullptr);
  CHECK(attnc_dtype_bytes(ATTNC_DTYPE_BF16) == 2);
  CHECK(attnc_dtype_bytes(ATTNC_DTYPE_I64) == 8);
  CHECK(std::string(attnc_dtype_name(ATTNC_DTYPE_E4M3)) == "e4m3");
  CHECK(attnc_dtype_bytes(ATTNC_DTYPE_E4M3) == 1);
  CHECK(attnc_dtype_bytes(-1) == 0);
  CHECK(std::string(attnc_family_name(ATTNC_FAMILY_SM90)) == "sm90");
  CHECK(std::string(attnc_family_name(ATTNC_FAMILY_GRID)) == "grid");
  CHECK(attnc_family_name(99) == nullptr);
}

TEST_CASE("families are listed for each pass", "[c]") {
  for (attnc_pass pass : {ATTNC_PASS_FORWARD, ATTNC_PASS_BACKWARD}) {
    REQUIRE(attnc_family_count(pass) >= 3);
    for (size_t i = 0; i < attnc_family_count(pass); ++i) {
      auto info = ctest::sized<attnc_family_info>();
      TAKE(attnc_get_family(pass, i, &info));
      CHECK(attnc_family_name(info.family) != nullptr);
      CHECK_THAT(info.arch, Catch::StartsWith("sm_"));
      CHECK(std::string(info.layouts) != "");
      CHECK(std::string(info.takes) != "");
    }
    auto info = ctest::sized<attnc_family_info>();
    REFUSED(ATTNC_ERROR_ARGUMENT, "index", attnc_get_family(pass, attnc_family_count(pass), &info));
  }
  CHECK(attnc_family_count(5) == 0);
  REFUSED(ATTNC_ERROR_ARGUMENT, "pass is 5", attnc_get_family(5, 0, nullptr));
}
